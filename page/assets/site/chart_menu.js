// The menu of a chart: its data as CSV, and a link to the visible range.

import { element } from "../shared/text.js";

/** Returns a cell that no spreadsheet runs as a formula. */
function cell(value) {
    const text = value === null || value === undefined ? "" : String(value);
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Returns the visible values of a chart as CSV: of each point in time, or of each part of the time and row of the heat map. */
export function csvOf(data, chart, [begin, end], byRow) {
    const { times, lines, means } = chart.shown;
    const middle = data.is_of_one_node ? "mean" : "median";
    const names = byRow ? data.rows.map(({ first, last, nodes }) => (nodes > 1 ? `${first} to ${last}` : first)) : ["min", middle, "max"];
    const columns = byRow ? chart.cells().columns : times.length;
    const at = (point) => (byRow ? chart.shown.begin_s + (point / columns) * (chart.shown.end_s - chart.shown.begin_s) : times[point]);
    const rows = [["time_us", "seconds", ...names]];
    for (let point = 0; point < columns; point += 1) {
        const seconds = at(point);
        if (seconds < begin || seconds > end) continue;
        const values = byRow ? means.map((row) => row[point]) : [lines[0][point], lines[1][point], lines[2][point]];
        rows.push([Math.round((data.begin_s + seconds) * 1e6), Number(seconds.toFixed(6)), ...values]);
    }
    return rows.map((row) => row.map(cell).join(",")).join("\r\n");
}

function save(name, text) {
    const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    element("a", { href: url, download: name }).click();
    URL.revokeObjectURL(url);
}

/** Creates the menu of a figure. `chosen()` is its chart; `rangeLink(begin, end)` the address of the page with a range, if it can have one. */
export function chartMenu(data, axis, chosen, { byRow = false, rangeLink = null } = {}) {
    const opener = element("summary", { title: "Menu" }, "⋯");
    const csv = element("button", { type: "button" }, "Data as CSV");
    const link = element("a", {}, "Link to this range");
    const menu = element("details", { className: "chart-menu" }, opener, element("div", { className: "menu-items" }, csv, ...(rangeLink ? [link] : [])));
    const name = () => opener.setAttribute("aria-label", `Menu of ${byRow ? "the nodes over time" : chosen().title}`);
    name();
    menu.addEventListener("toggle", () => {
        name();
        if (rangeLink) link.href = rangeLink(...axis.range);
    });
    axis.listeners.push(() => { if (rangeLink) link.href = rangeLink(...axis.range); });
    csv.addEventListener("click", () => {
        save(`${chosen().title.replace(/[^\w.]+/g, "-")}.csv`, csvOf(data, chosen(), axis.range, byRow));
        menu.open = false;
        opener.focus();
    });
    menu.addEventListener("keydown", (event) => {
        if (event.key !== "Escape" || !menu.open) return;
        menu.open = false;
        opener.focus();
        event.stopPropagation();
    });
    menu.addEventListener("focusout", ({ relatedTarget }) => { if (relatedTarget && !menu.contains(relatedTarget)) menu.open = false; });
    return menu;
}
