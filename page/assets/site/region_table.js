// The regions of the job's instrumented programs, as the report has them.

import { duration, element, threeDigits } from "../shared/text.js";

const SHOWN_MAX = 50;

/** Name and class. Narrow pages leave out what is of middle importance. */
const COLUMNS = [
    ["Region", ""], ["Self", "number"], ["Time", "number middle"], ["Of run", "number"], ["Entries", "number middle"], ["Threads", "number middle"],
    ["Self by rank", "number middle"], ["Most", "middle"],
];

function row(region) {
    const { ranks } = region;
    const threads = region.thread_imbalance === null ? String(region.threads) : `${region.threads} (${region.thread_imbalance.toFixed(2)})`;
    const cells = [
        duration(region.self_s), duration(region.time_s), region.run_percent === null ? "–" : `${threeDigits(region.run_percent)} %`, String(region.entries), threads,
        ranks ? [ranks.least_s, ranks.mean_s, ranks.most_s].map(duration).join(" / ") : "–", ranks ? element("bdi", {}, ranks.most) : "–",
    ];
    return element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, region.region)),
        ...cells.map((cell, column) => element("td", { className: COLUMNS[column + 1][1] }, cell)));
}

/** Returns the section with the regions, those with the most time of their own first. */
export function regionSection(regions) {
    const head = element("tr", {}, ...COLUMNS.map(([name, className]) => element("th", { scope: "col", className }, name)));
    const rows = regions.slice(0, SHOWN_MAX).map(row);
    const table = element("table", { className: "regions" }, element("thead", {}, head), element("tbody", {}, ...rows));
    table.setAttribute("aria-labelledby", "regions");
    const more = regions.length > SHOWN_MAX ? ` ${SHOWN_MAX} of ${regions.length} are shown.` : "";
    const remark = "Times are summed over threads; self: without regions inside; of run: time / (time of the job × threads); "
        + `threads: in parentheses the largest time of a thread / mean of its process; self by rank: the smallest, mean and largest.${more}`;
    const section = element("section", {}, element("h2", { id: "regions" }, "Regions of the program"),
        element("div", { className: "scroll" }, table), element("p", { className: "remark" }, remark));
    section.setAttribute("aria-labelledby", "regions");
    return section;
}
