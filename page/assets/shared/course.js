// Charts over time: the range over nodes, or of one node, as an area with a line in the middle.

import { baseOptions, bindKeys, drawPhases, phasesAt } from "./axis.js";
import { element, tickText, valueText } from "./text.js";
import { colours, isPrinting, onPaper, plotWidth, resizePlot } from "./theme.js";
import uPlot from "../uplot/module.js";

const CHART_HEIGHT = 190;
/** The height in narrow pages, and the width below which a page is narrow. */
const NARROW_HEIGHT = 150;
const NARROW_WIDTH = 500;
const PAPER_HEIGHT = 150;

/** Returns the names of the three lines. */
function lineNames(data) {
    return data.is_of_one_node ? ["min", "mean", "max"] : ["min", "median", "max"];
}

/** Describes a chart in words. */
export function summaryText(data, chart) {
    const { min, mean, max } = chart.extent;
    const [low, middle, high] = [min, mean, max].map((value) => valueText(chart.unit, value));
    const of = data.is_of_one_node ? "" : ` on ${data.rows.reduce((sum, row) => sum + row.nodes, 0)} nodes`;
    const requested = chart.requested ? `, ${chart.requested.text}` : "";
    const values = mean === null ? "no values" : `min ${low}, mean ${middle}, max ${high}`;
    return `${chart.title}${of}: ${values}${requested}`;
}

/** Returns the position of the time that is nearest to another one; times ascend. */
export function nearest(times, seconds) {
    let [low, high] = [0, times.length - 1];
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (times[middle] <= seconds) low = middle;
        else high = middle;
    }
    return Math.abs(times[high] - seconds) < Math.abs(times[low] - seconds) ? high : low;
}

/** Returns the positions of values without another one beside them; null if there are none. */
export function pointsAlone(line) {
    const isThere = (point) => (line[point] ?? null) !== null;
    const alone = line.map((_, point) => point).filter((point) => isThere(point) && !isThere(point - 1) && !isThere(point + 1));
    return alone.length > 0 ? alone : null;
}

/**
 * Creates the figure of a chart. `chart.course()` returns the times in seconds since the start, and three lines; `isRaw` in it tells that its points are
 * samples.
 */
export function chartFigure(data, axis, chart) {
    const heading = element("h3", {}, chart.title);
    if (chart.unitText) heading.append(" ", element("span", { className: "unit" }, chart.unitText));
    const readout = element("p", { className: "readout" });
    const place = element("div", { className: "plot", tabIndex: 0, role: "img" });
    const figure = element("figure", { className: "chart" }, heading, readout, place);
    let course = { times: [], lines: [[], [], []], isRaw: false };
    let plot = null;
    const names = lineNames(data);

    const rest = () => {
        readout.textContent = summaryText(data, chart).slice(chart.title.length).replace(/^[: ]+/, "");
    };
    const hover = () => {
        const left = plot.cursor.left;
        if (left === undefined || left < 0) return rest();
        const seconds = plot.posToVal(left, "x");
        const point = nearest(course.times, seconds);
        const values = course.lines.map((line) => line[point] ?? null);
        const text = values[1] === null
            ? "no samples"
            : values[0] === values[2] ? valueText(chart.unit, values[1])
            : values.map((value, line) => `${names[line]} ${valueText(chart.unit, value)}`).join(", ");
        const phases = phasesAt(data, seconds);
        readout.textContent = `${axis.text(seconds)}: ${text}${phases.length ? ` · ${phases.join(", ")}` : ""}`;
    };

    const columns = () => [course.times, course.lines[2], course.lines[1], course.lines[0]];
    const describe = () => {
        place.setAttribute("aria-label", `${summaryText(data, chart)}. Keys: + and - zoom, arrows move, 0 shows all.`);
    };

    figure.draw = () => {
        plot?.destroy();
        axis.plots.delete(plot);
        const paint = colours();
        const width = plotWidth(place);
        const usual = width < NARROW_WIDTH ? NARROW_HEIGHT : CHART_HEIGHT;
        const options = baseOptions(data, axis, { width, height: isPrinting() || onPaper.matches ? PAPER_HEIGHT : usual });
        const edge = { stroke: data.is_of_one_node ? "transparent" : paint.low, width: 1, points: { show: false } };
        // Points that are few are shown, and those that have no line, alone between gaps.
        const isPoint = (drawn, _, first, last) => course.isRaw && (last - first) * 10 < drawn.bbox.width / devicePixelRatio;
        const alone = (_, __, isShown) => (isShown ? null : pointsAlone(course.lines[1]));
        options.series = [
            {},
            { ...edge, label: names[2] },
            { label: names[1], stroke: paint.line, width: 1.75, points: { show: isPoint, filter: alone, size: 6, fill: paint.line } },
            { ...edge, label: names[0] },
        ];
        options.bands = [{ series: [1, 3], fill: paint.range }];
        options.scales.y = {
            range: (_, low, high) => {
                // What was requested is always in the scale.
                const requested = chart.requested?.value ?? null;
                if (low === null || high === null) return [0, requested === null ? 1 : requested * 1.15];
                const bottom = low >= 0 ? 0 : low * 1.05;
                if (requested !== null && requested >= high) return [bottom, requested * (data.bands.length > 0 ? 1.25 : 1.15)];
                // The names of phases are above the lines.
                const room = data.bands.length > 0 ? 0.2 : 0.08;
                return [bottom, high > bottom ? high + (high - bottom) * room : bottom + 1];
            },
        };
        options.axes[1].values = (_, ticks) => ticks.map((tick) => tickText(chart.unit, tick));
        if (chart.unit.startsWith("bytes")) options.axes[1].splits = (_, __, low, high) => binaryTicks(low, high);
        options.hooks.drawClear = [(drawn) => drawPhases(drawn, data, true)];
        options.hooks.draw = [(drawn) => drawRequest(drawn, chart.requested)];
        options.hooks.setCursor = [(drawn) => { plot = drawn; hover(); }];
        plot = new uPlot(options, columns(), place);
        axis.plots.add(plot);
        rest();
    };
    figure.resize = () => resizePlot(plot, place);
    /** Shows another quantity. */
    figure.show = (next) => {
        chart = next;
        heading.replaceChildren(chart.title);
        if (chart.unitText) heading.append(" ", element("span", { className: "unit" }, chart.unitText));
        course = chart.course();
        describe();
        figure.draw();
    };
    /** Shows the quantity's present values. */
    figure.refresh = () => {
        course = chart.course();
        describe();
        if (!plot) return figure.draw();
        plot.setData(columns());
        hover();
    };
    bindKeys(place, axis);
    figure.begin = () => { if (!plot) figure.show(chart); };
    return figure;
}

/** Draws the requested amount, if it is known: a horizontal line with its name. */
function drawRequest({ ctx, bbox, valToPos }, requested) {
    if (!requested) return;
    const paint = colours();
    const top = Math.round(valToPos(requested.value, "y", true)) + 0.5;
    const gap = 3 * devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.strokeStyle = paint.mark;
    ctx.fillStyle = paint.text;
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.setLineDash([7 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "bottom";
    ctx.beginPath();
    ctx.moveTo(bbox.left, top);
    ctx.lineTo(bbox.left + bbox.width, top);
    ctx.stroke();
    ctx.fillText(requested.text, bbox.left + gap, top - gap);
    ctx.restore();
}

/** Returns round ticks for bytes: multiples of powers of two. */
export function binaryTicks(low, high) {
    const wanted = (high - low) / 4;
    let step = 1;
    while (step < wanted) step *= 2;
    const ticks = [];
    for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
    return ticks;
}
