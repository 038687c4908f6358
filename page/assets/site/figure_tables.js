// The figures of charts as tables: for readers without pictures, and for copying.

import { element, valueText } from "../shared/text.js";

/** Rows of the table over time. */
const TIMES_MAX = 24;
const NODES_MAX = 200;

const known = (values) => values.filter((value) => value !== null && value !== undefined);
const least = (values) => known(values).reduce((min, value) => (min === null ? value : Math.min(min, value)), null);
const largest = (values) => known(values).reduce((max, value) => (max === null ? value : Math.max(max, value)), null);
const mean = (values) => {
    const there = known(values);
    return there.length > 0 ? there.reduce((sum, value) => sum + value, 0) / there.length : null;
};

function table(caption, head, rows) {
    const heads = head.map((name, column) => element("th", { scope: "col", className: column ? "number" : "" }, name));
    const lines = rows.map(([name, ...values]) => element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, name)),
        ...values.map((value) => element("td", { className: "number" }, value))));
    return element("div", { className: "scroll" }, element("table", {}, element("caption", {}, caption),
        element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...lines)));
}

/** Returns the rows over time: each has the figures of several points, so that there are few. */
function rowsOverTime(chart, axis) {
    const { times, lines } = chart.shown;
    const inRange = times.map((_, point) => point).filter((point) => times[point] >= axis.range[0] && times[point] <= axis.range[1]);
    const size = Math.max(Math.ceil(inRange.length / TIMES_MAX), 1);
    const groups = Array.from({ length: Math.ceil(inRange.length / size) }, (_, number) => inRange.slice(number * size, (number + 1) * size));
    const of = (line, points) => points.map((point) => lines[line][point]);
    return groups.map((points) => {
        const figures = [least(of(0, points)), mean(of(1, points)), largest(of(2, points))];
        const texts = figures[1] === null ? ["no samples", "", ""] : figures.map((value) => valueText(chart.unit, value));
        return [axis.text(times[points[0]]), ...texts];
    });
}

function rowsByNode(chart, nodes) {
    // The rows of a job on many nodes are groups of them.
    const names = chart.shown.rows?.map(({ first, last, nodes: count }) => (count > 1 ? `${first} … ${last} (mean of ${count})` : first)) ?? nodes;
    const rows = names.map((node, number) => ({ node, mean: mean(chart.shown.means[number] ?? []), max: largest(chart.shown.means[number] ?? []) }));
    rows.sort((one, other) => (other.mean ?? -Infinity) - (one.mean ?? -Infinity));
    return rows.slice(0, NODES_MAX).map((row) => [row.node, valueText(chart.unit, row.mean), valueText(chart.unit, row.max)]);
}

/** Creates the tables, which are computed when they are opened. */
export function figureTables(id, { data, axis, nodes, chosen, loadAll }) {
    const choice = element("select");
    const contents = element("div", { className: "tables" });
    const controls = element("div", { className: "controls" }, element("label", {}, "Over time: ", choice));
    const place = element("details", { className: "figures", id }, element("summary", {}, "Figures of the charts as tables"), controls, contents);

    const offer = (charts) => {
        const before = choice.value;
        if ([...choice.options].map((option) => option.value).join("\n") === charts.map((chart) => chart.id).join("\n")) return;
        choice.replaceChildren(...charts.map((chart) => element("option", { value: chart.id }, chart.title)));
        if (charts.some((chart) => chart.id === before)) choice.value = before;
    };
    /** Shows the present figures, if the tables are open. */
    place.show = () => {
        if (!place.open) return;
        const charts = chosen();
        offer(charts);
        const when = axis.isFull() ? "the whole time" : `${axis.text(axis.range[0])} to ${axis.text(axis.range[1])}`;
        const figures = (chart) => ["min", "mean", "max"].map((name) => valueText(chart.unit, chart.extent[name]));
        const all = table(`All charts, ${when}`, ["Quantity", "min", "mean", "max"], charts.map((chart) => [chart.title, ...figures(chart)]));
        const chart = charts.find((one) => one.id === choice.value) ?? charts[0];
        const middle = data.is_of_one_node ? "mean" : "median of nodes";
        const overTime = table(`${chart.title} over time`, ["Time", "min", middle, "max"], rowsOverTime(chart, axis));
        const byNode = nodes.length > 1 ? [table(`${chart.title} by node`, ["Node", "mean", "largest"], rowsByNode(chart, nodes))] : [];
        contents.replaceChildren(all, overTime, ...byNode);
    };
    choice.addEventListener("change", place.show);
    place.addEventListener("toggle", () => { place.show(); if (place.open) loadAll(); });
    return place;
}
