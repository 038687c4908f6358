// The differences between two jobs, or two groups of jobs, as a table.

import { duration, element, threeDigits, valueText } from "../shared/text.js";

const VERDICTS = {
    higher: "B is higher", lower: "B is lower", no_difference_shown: "no difference shown", too_few_values: "too few values", one_side_only: "on one side only",
};

const isShown = (row) => ["higher", "lower"].includes(row.verdict) || ["elapsed", "cpu_time", "energy"].includes(row.metric);

function text(row, value) {
    if (value === null) return "–";
    if (["elapsed", "cpu_time"].includes(row.metric)) return duration(value);
    return valueText(row.unit, value);
}

function signed(row, value) {
    return value === null ? "–" : `${value < 0 ? "−" : "+"}${text(row, Math.abs(value))}`;
}

function line(row) {
    const percent = row.percent === null ? "" : ` (${row.percent < 0 ? "−" : "+"}${threeDigits(Math.abs(row.percent))} %)`;
    const interval = row.interval === null ? "–" : `${signed(row, row.interval[0])} to ${signed(row, row.interval[1])}`;
    const name = `${row.metric}${row.is_estimate ? " (estimated)" : ""}`;
    const cells = [text(row, row.a), text(row, row.b), `${signed(row, row.difference)}${percent}`, interval];
    return element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, name)),
        ...cells.map((cell, column) => element("td", { className: column === 3 ? "number middle" : "number" }, cell)),
        element("td", { className: isShown(row) ? "" : "soft" }, VERDICTS[row.verdict]));
}

/** Creates the table: shown differences first; the others, and those of each phase, on demand. */
export function comparisonTable(comparison) {
    const phases = [...new Set(comparison.rows.map((row) => row.phase))];
    const phase = element("select", {}, ...phases.map((name, number) => element("option", { value: number }, name === null ? "whole jobs" : name)));
    const every = element("input", { type: "checkbox" });
    const body = element("tbody");
    const remark = element("p", { className: "remark" });
    const show = () => {
        const rows = comparison.rows.filter((row) => row.phase === phases[Number(phase.value)]);
        const shown = rows.filter((row) => every.checked || isShown(row));
        body.replaceChildren(...shown.map(line));
        const hidden = rows.length - shown.length;
        const alone = comparison.basis === "jobs" ? "" : "A side has a single job: intervals cover variation within the jobs, and a difference may be chance. ";
        remark.textContent = `${alone}${hidden > 0 ? `${hidden} metrics show no difference.` : ""}`;
    };
    phase.addEventListener("change", show);
    every.addEventListener("change", show);
    const heads = ["Metric", "A", "B", "Difference", "95 % interval", ""].map((name, column) =>
        element("th", { scope: "col", className: ["", "number", "number", "number", "number middle", ""][column] }, name));
    const table = element("table", { className: "comparison" }, element("caption", {}, "Differences, the most important first"),
        element("thead", {}, element("tr", {}, ...heads)), body);
    const of = element("label", { hidden: phases.length < 2 }, "Of: ", phase);
    show();
    return element("div", {}, element("div", { className: "scroll" }, table), remark,
        element("div", { className: "controls" }, of, element("label", {}, every, " Metrics without a shown difference")));
}
