// The heat map: nodes by time.

import { baseOptions, bindKeys } from "./axis.js";
import { summaryText } from "./course.js";
import { element, valueText } from "./text.js";
import { colours, plotWidth, resizePlot, viridis } from "./theme.js";
import uPlot from "../uplot/module.js";

/** Returns the name of a row of a heat map. */
function rowName(row) {
    return row.nodes > 1 ? `${row.first} … ${row.last} (mean of ${row.nodes})` : row.first;
}

/** Creates the figure of the heat map. `chart.cells()` returns the values by row and column, and the time of the columns, in seconds since the start. */
export function heatFigure(data, axis) {
    const charts = data.charts.filter((chart) => chart.heat);
    let chart = charts[0];
    let cells = { values: [], columns: 1, begin_s: 0, end_s: 1 };
    let order = data.rows.map((_, row) => row);
    let plot = null;
    let selected = null;
    let isInside = false;

    const choice = quantityChoice("Quantity", charts, (next) => { chart = next; figure.onChoice?.(); load(); figure.draw(); });
    const sorting = element("select", {},
        element("option", { value: "name" }, "name"),
        element("option", { value: "high" }, "largest mean first"),
        element("option", { value: "low" }, "smallest mean first"));
    sorting.addEventListener("change", () => { sort(); figure.draw(); });
    const controls = element("div", { className: "controls" }, choice, element("label", {}, "Nodes by ", sorting));
    const readout = element("p", { className: "readout" });
    readout.setAttribute("aria-live", "polite");
    const place = element("div", { className: "plot heat", tabIndex: 0, role: "img" });
    const legend = element("div", { className: "heat-legend" });
    const figure = element("figure", { className: "chart wide", id: "heat-map" },
        element("h3", {}, "Nodes over time"), controls, readout, place, legend);

    const meanOf = (row) => {
        const known = cells.values.slice(row * cells.columns, (row + 1) * cells.columns).filter((value) => value !== null);
        return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : -Infinity;
    };
    const sort = () => {
        order = data.rows.map((_, row) => row);
        if (sorting.value === "name") return;
        const means = order.map(meanOf);
        const sign = sorting.value === "high" ? -1 : 1;
        order.sort((one, other) => sign * (means[one] - means[other]));
    };
    const extent = () => {
        const known = cells.values.filter((value) => value !== null);
        const high = known.reduce((most, value) => Math.max(most, value), -Infinity);
        const low = known.reduce((least, value) => Math.min(least, value), Infinity);
        return [Math.min(low, 0), high > Math.min(low, 0) ? high : Math.min(low, 0) + 1];
    };
    const timeOf = (column) => cells.begin_s + (column / cells.columns) * (cells.end_s - cells.begin_s);
    const columnOf = (seconds) => {
        const column = Math.floor(((seconds - cells.begin_s) / (cells.end_s - cells.begin_s)) * cells.columns);
        return Math.min(Math.max(column, 0), cells.columns - 1);
    };
    const load = () => {
        cells = chart.cells();
        sort();
        const [low, high] = extent();
        const stops = [0, 0.25, 0.5, 0.75, 1];
        const gradient = element("canvas", { width: 256, height: 1, className: "gradient" });
        gradient.setAttribute("aria-hidden", "true");
        const ctx = gradient.getContext("2d");
        for (let left = 0; left < 256; left += 1) {
            ctx.fillStyle = viridis(left / 255);
            ctx.fillRect(left, 0, 1, 1);
        }
        const ticks = stops.map((stop) => element("span", {}, valueText(chart.unit, low + stop * (high - low))));
        const size = data.rows[0].nodes;
        const grouped = size > 1 ? ` Each row is the mean of ${size} nodes.` : "";
        legend.replaceChildren(gradient, element("div", { className: "stops" }, ...ticks),
            element("p", { className: "remark" }, `Without colour: no samples.${grouped}`));
        place.setAttribute("aria-label",
            `${summaryText(data, chart)}, by node and time.${grouped} Keys: arrows select a node and a time, + and - zoom, 0 shows all. The tables have the figures.`);
    };
    const describe = (position, seconds) => {
        const row = order[position];
        if (row === undefined || seconds < cells.begin_s || seconds > cells.end_s) return;
        const value = cells.values[row * cells.columns + columnOf(seconds)] ?? null;
        const text = value === null ? "no samples" : `${valueText(chart.unit, value)}${chart.unit === "cores" ? " cores" : ""}`;
        readout.textContent = `${rowName(data.rows[row])}, ${axis.text(seconds)}: ${text}`;
    };
    const rest = () => { readout.textContent = summaryText(data, chart); };

    const paintCells = (drawn) => {
        const { ctx, bbox } = drawn;
        const paint = colours();
        const [low, high] = extent();
        ctx.save();
        ctx.beginPath();
        ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
        ctx.clip();
        ctx.fillStyle = paint.missing;
        ctx.fillRect(bbox.left, bbox.top, bbox.width, bbox.height);
        const edges = Array.from({ length: cells.columns + 1 }, (_, column) => Math.round(drawn.valToPos(timeOf(column), "x", true)));
        const edge = (column) => edges[column];
        const height = bbox.height / order.length;
        order.forEach((row, position) => {
            const top = Math.round(bbox.top + position * height);
            const bottom = Math.round(bbox.top + (position + 1) * height);
            for (let column = 0; column < cells.columns; column += 1) {
                const value = cells.values[row * cells.columns + column];
                if (value === null) continue;
                const left = edge(column);
                ctx.fillStyle = viridis((value - low) / (high - low));
                ctx.fillRect(left, top, edge(column + 1) - left, bottom - top);
            }
        });
        for (const band of data.bands) {
            ctx.fillStyle = data.phaseColours.get(band.name);
            const left = drawn.valToPos(band.begin_s, "x", true);
            ctx.fillRect(left, bbox.top, Math.max(drawn.valToPos(band.end_s, "x", true) - left, 1), 4 * devicePixelRatio);
        }
        if (selected) {
            ctx.strokeStyle = "#ffffff";
            ctx.lineWidth = 2 * devicePixelRatio;
            const left = edge(selected.column);
            ctx.strokeRect(left, bbox.top + selected.position * height, Math.max(edge(selected.column + 1) - left, 3), Math.max(height, 3));
        }
        ctx.restore();
    };
    /** Moves the selected cell. */
    const select = (columns, rows) => {
        const first = columnOf(axis.range[0]);
        selected ??= { column: first, position: 0 };
        selected.column = Math.min(Math.max(selected.column + columns, 0), cells.columns - 1);
        selected.position = Math.min(Math.max(selected.position + rows, 0), order.length - 1);
        describe(selected.position, timeOf(selected.column + 0.5));
        plot.redraw();
    };

    figure.draw = () => {
        plot?.destroy();
        axis.plots.delete(plot);
        const rows = order.length;
        const height = Math.min(Math.max(rows * 14, 120), 620) + 42;
        const options = baseOptions(data, axis, { width: plotWidth(place), height });
        options.series = [{}, { stroke: "transparent", points: { show: false } }];
        options.scales.y = { range: () => [0, rows], dir: -1 };
        const longest = data.rows.reduce((most, row) => Math.max(most, row.first.length), 0);
        const narrow = place.clientWidth < 500;
        const letters = Math.min(longest, narrow ? 9 : 22);
        options.axes[1] = {
            ...options.axes[1],
            size: 20 + letters * 7,
            grid: { show: false },
            ticks: { show: false },
            splits: () => {
                const every = Math.max(1, Math.ceil((rows * 14) / (height - 42)));
                return order.map((_, position) => position + 0.5).filter((_, position) => position % every === 0);
            },
            values: (_, ticks) => ticks.map((tick) => shortName(data.rows[order[Math.floor(tick)]]?.first ?? "", letters)),
        };
        options.hooks.draw = [paintCells];
        options.hooks.setCursor = [(drawn) => {
            const { left, top } = drawn.cursor;
            // The cursor of another chart has no node.
            if (!isInside || left < 0 || top < 0) return rest();
            describe(Math.floor(drawn.posToVal(top, "y")), drawn.posToVal(left, "x"));
        }];
        plot = new uPlot(options, [[0, data.span_s], [0, rows]], place);
        axis.plots.add(plot);
        rest();
    };
    figure.resize = () => resizePlot(plot, place);
    figure.begin = () => { if (!plot) figure.refresh(); };
    /** Shows the quantity's present values. */
    figure.refresh = () => {
        load();
        if (!plot) return figure.draw();
        plot.setData([[0, data.span_s], [0, order.length]]);
        if (!isInside) rest();
        if (selected) selected.column = Math.min(selected.column, cells.columns - 1);
    };
    /** Returns the quantity that is shown. */
    figure.chosen = () => chart;
    place.addEventListener("mouseenter", () => { isInside = true; });
    place.addEventListener("mouseleave", () => { isInside = false; });
    bindKeys(place, axis, {
        ArrowLeft: () => select(-1, 0), ArrowRight: () => select(1, 0), ArrowUp: () => select(0, -1), ArrowDown: () => select(0, 1),
    });
    return figure;
}

/** Shortens a name in its middle, since names of nodes differ at their ends. */
function shortName(name, letters) {
    const all = Array.from(name);
    if (all.length <= letters) return name;
    const end = Math.ceil((letters - 1) / 2);
    return `${all.slice(0, letters - 1 - end).join("")}…${all.slice(-end).join("")}`;
}

/** Returns the quantities that are not drawn anyway; those of the agent and of single processes come last. */
export function otherQuantities(charts) {
    const isLast = ({ title }) => /^(agent|busiest)\./.test(title);
    return charts.filter((chart) => !chart.is_main).sort((one, other) => isLast(one) - isLast(other));
}

/** Returns a selection of a quantity. */
export function quantityChoice(label, charts, chosen) {
    const groups = [["Important", (chart) => chart.is_main], ["All metrics", (chart) => !chart.is_main]];
    const select = element("select");
    for (const [name, belongs] of groups) {
        const options = charts.map((chart, position) => [chart, position]).filter(([chart]) => belongs(chart));
        if (options.length === 0) continue;
        const group = element("optgroup", { label: name });
        for (const [chart, position] of options) group.append(element("option", { value: String(position) }, chart.title));
        select.append(group);
    }
    select.addEventListener("change", () => chosen(charts[Number(select.value)]));
    return element("label", {}, `${label} `, select);
}
