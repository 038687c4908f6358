// What the runs of one name used, over time: a point for each run, and a line for each level.

import { STEPS, baseOptions, bindKeys, timeAxis } from "../shared/axis.js";
import { binaryTicks, nearest } from "../shared/course.js";
import { bytes, dateText, duration, element, plainNumber, threeDigits, valueText } from "../shared/text.js";
import { colours, plotWidth, prefersDark, resizePlot } from "../shared/theme.js";
import uPlot from "../uplot/module.js";

const HEIGHT = 150;

/** Returns round ticks for durations. */
function durationTicks(low, high) {
    const step = STEPS.find((one) => one >= (high - low) / 4) ?? STEPS[STEPS.length - 1];
    const ticks = [];
    for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
    return ticks;
}

/** The quantities by their keys in runs. */
export const QUANTITIES = new Map([
    ["elapsed_s", { title: "elapsed", text: duration, ticks: durationTicks }],
    ["cpu_s", { title: "CPU time", text: duration, ticks: durationTicks }],
    ["cores_used", { title: "cores used", text: plainNumber }],
    ["memory_used_bytes", { title: "memory peak", text: bytes, ticks: binaryTicks }],
    ["energy_j", { title: "energy", text: (joules) => valueText("joules", joules) }],
    ["wasted_core_hours", { title: "wasted core-hours", text: threeDigits }],
]);

/** Formats a value of a quantity. */
export function quantityText(key, value) {
    return value === null ? "–" : QUANTITIES.get(key).text(value);
}

/** Returns the level of a quantity at each run, as a step at each change. */
function levelsOf(key, { runs, changes }) {
    const steps = changes.flatMap((change) => change.levels.filter(({ quantity }) => quantity === key).map((level) => ({ ...level, at_us: change.started_us })));
    if (steps.length === 0) return runs.map(() => null);
    let passed = 0;
    return runs.map(({ started_us }) => {
        while (passed < steps.length && started_us >= steps[passed].at_us) passed += 1;
        return passed === 0 ? steps[0].before : steps[passed - 1].after;
    });
}

/** Creates the figure of one quantity. */
function figureOf(key, trend, times, axis, data) {
    const { title, text, ticks } = QUANTITIES.get(key);
    const values = trend.runs.map((run) => run[key]);
    const levels = levelsOf(key, trend);
    const readout = element("p", { className: "readout" });
    const place = element("div", { className: "plot", tabIndex: 0, role: "img" });
    const figure = element("figure", { className: "chart" }, element("h3", {}, `${title.charAt(0).toUpperCase()}${title.slice(1)}`), readout, place);
    const known = values.filter((value) => value !== null).toSorted((one, other) => one - other);
    const now = levels[levels.length - 1];
    const summary = `min ${text(known[0])}, median ${text(known[Math.floor(known.length / 2)])}, max ${text(known[known.length - 1])}${now === null ? "" : `, now ${text(now)}`}`;
    let plot = null;
    const hover = () => {
        const left = plot.cursor.left;
        if (left === undefined || left < 0) { readout.textContent = summary; return; }
        const at = nearest(times, plot.posToVal(left, "x"));
        const run = trend.runs[at];
        readout.textContent = `job ${run.job}, ${dateText(run.started_us / 1e6).slice(0, 16)}: ${quantityText(key, run[key])}`;
    };
    figure.draw = () => {
        plot?.destroy();
        axis.plots.delete(plot);
        const paint = colours();
        const options = baseOptions(data, axis, { width: plotWidth(place), height: HEIGHT });
        options.series = [
            {},
            { stroke: paint.line, paths: () => null, points: { show: true, size: 5, fill: paint.line, width: 0 } },
            { stroke: paint.mark, width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, spanGaps: true },
        ];
        options.scales.y = {
            range: (_, low, high) => {
                if (low === null || high === null) return [0, 1];
                const room = Math.max((high - low) * 0.15, Math.abs(high) * 0.03) || 1;
                return [low >= 0 ? Math.max(low - room, 0) : low - room, high + room];
            },
        };
        if (ticks) options.axes[1].splits = (_, __, low, high) => ticks(low, high);
        options.axes[1].values = (_, values) => values.map((value) => (value === 0 ? "0" : text(value)));
        options.hooks.setCursor = [(drawn) => { plot = drawn; hover(); }];
        plot = new uPlot(options, [times, values, levels], place);
        axis.plots.add(plot);
        readout.textContent = summary;
        place.setAttribute("aria-label", `${title} of ${known.length} runs: ${summary}. Keys: + and - zoom, arrows move, 0 shows all.`);
    };
    figure.resize = () => resizePlot(plot, place);
    bindKeys(place, axis);
    return figure;
}

/** Creates the charts of the quantities that are known. */
export function trendCharts(trend) {
    const { runs } = trend;
    const begin_s = (runs[0]?.started_us ?? 0) / 1e6;
    const times = runs.map(({ started_us }) => started_us / 1e6 - begin_s);
    const data = { begin_s, span_s: Math.max(times[times.length - 1] ?? 0, 60), bands: [], marks: [] };
    const axis = timeAxis(data);
    const keys = [...QUANTITIES.keys()].filter((key) => runs.some((run) => run[key] !== null));
    const figures = keys.map((key) => figureOf(key, trend, times, axis, data));
    const place = element("section", { hidden: figures.length === 0 }, element("h2", { id: "runs" }, "Runs over time"),
        element("p", { className: "soft" }, "A point is a run; the line is the level, which is the median between two changes. The scales need not begin at 0."),
        element("div", { className: "grid" }, ...figures));
    place.setAttribute("aria-labelledby", "runs");
    const draw = () => figures.forEach((figure) => figure.draw());
    place.begin = () => {
        draw();
        prefersDark.addEventListener("change", draw);
        new ResizeObserver(() => figures.forEach((figure) => figure.resize())).observe(place);
    };
    return place;
}
