// Quantities of several jobs in the same charts, by the time since their start or since the begin of a phase.

import { baseOptions, bindKeys, timeAxis } from "../shared/axis.js";
import { binaryTicks, nearest } from "../shared/course.js";
import { drawing, element, tickText, valueText } from "../shared/text.js";
import { colours, onPaper, plotWidth, prefersDark, resizePlot } from "../shared/theme.js";
import uPlot from "../uplot/module.js";
import { jobSubject } from "./course_loader.js";
import { loadJobCourse } from "./job_course.js";
import { idText } from "./job_text.js";
import { quantitiesOfMetrics } from "./metric_quantities.js";
import { limited } from "./queue.js";

/** On a phone several charts are seen at once. */
const isNarrow = matchMedia("(max-width: 46rem)");
const height = () => (isNarrow.matches ? 110 : 170);

/** Requests at once, of those that the API grants a user. */
const turn = limited(3);

/** The colours of the sides (Okabe and Ito), on light and on dark paper; B is also dashed. */
const COLOURS = { a: ["#0b62a4", "#6cb2eb"], b: ["#b35900", "#e69f00"] };
const DASH = { a: [], b: [7, 4] };

/** Shades that tell the jobs of a side apart. */
const SHADES = [1, 0.7, 0.5, 0.35];

const isDark = () => prefersDark.matches && !onPaper.matches;

/** Returns the lines of the jobs: which colour, dash and shade each has. */
function stylesOf(jobs) {
    const counts = { a: 0, b: 0 };
    return jobs.map(({ side }) => {
        const shade = SHADES[Math.min(counts[side], SHADES.length - 1)];
        counts[side] += 1;
        return { side, shade };
    });
}

function legend(jobs, styles) {
    const items = jobs.map(({ side, job }, number) => {
        const line = drawing("line", { x1: 0, y1: 5, x2: 26, y2: 5, class: `side-${side}`, "stroke-opacity": styles[number].shade });
        return element("li", {}, drawing("svg", { viewBox: "0 0 26 10", class: "line-chip", "aria-hidden": "true" }, line),
            element("bdi", {}, `${side.toUpperCase()}: ${idText(job)}${job.name ? ` ${job.name}` : ""}`));
    });
    const list = element("ul", { className: "phases" }, ...items);
    list.setAttribute("aria-label", "Jobs");
    return list;
}

/** Returns the phases that all jobs have. */
function commonPhases(jobs) {
    const [first, ...others] = jobs.map(({ bands }) => new Set(bands.map(({ name }) => name)));
    return [...first].filter((name) => others.every((names) => names.has(name)));
}

/** Creates the figure of one quantity. `courses` are those of the jobs; null for one that lacks it or is not yet there. */
function overlay(quantity, jobs, styles, axis, data, offsets) {
    const readout = element("p", { className: "readout" });
    const place = element("div", { className: "plot", tabIndex: 0, role: "img" });
    const heading = element("h3", {}, quantity.title);
    if (quantity.unitText) heading.append(" ", element("span", { className: "unit" }, quantity.unitText));
    const figure = element("figure", { className: "chart" }, heading, readout, place);
    figure.quantity = quantity;
    const courses = jobs.map(() => null);
    let plot = null;
    let tables = [];

    const name = (number) => `${jobs[number].side.toUpperCase()} ${idText(jobs[number].job)}`;
    const mean = (course) => course?.extent.mean ?? null;
    const rest = () => {
        readout.textContent = courses.map((course, number) => `${name(number)}: ${mean(course) === null ? "no values" : `mean ${valueText(quantity.unit, mean(course))}`}`).join(", ");
        place.setAttribute("aria-label", `${quantity.title}: ${readout.textContent}. Keys: + and - zoom, arrows move, 0 shows all.`);
    };
    const hover = () => {
        const left = plot.cursor.left;
        if (left === undefined || left < 0) return rest();
        const seconds = plot.posToVal(left, "x");
        const values = tables.map(([times, line], number) => {
            const isInside = times.length > 0 && seconds >= times[0] && seconds <= times[times.length - 1];
            const value = isInside ? line[nearest(times, seconds)] : null;
            return `${name(number)} ${value === null ? "–" : valueText(quantity.unit, value)}`;
        });
        readout.textContent = `${axis.tickText(seconds)}: ${values.join(", ")}`;
        return null;
    };
    figure.draw = () => {
        plot?.destroy();
        axis.plots.delete(plot);
        tables = courses.map((course, number) => (course ? [course.times.map((at) => at - offsets[number]), course.lines[1]] : [[], []]));
        const options = baseOptions(data, axis, { width: plotWidth(place), height: height() });
        options.series = [{}, ...styles.map(({ side, shade }) => ({
            stroke: `${COLOURS[side][isDark() ? 1 : 0]}${Math.round(shade * 255).toString(16).padStart(2, "0")}`,
            dash: DASH[side], width: 1.75, points: { show: false }, spanGaps: false,
        }))];
        options.scales.y = { range: (_, low, high) => (low === null || high === null ? [0, 1] : [Math.min(low, 0), high > 0 ? high * 1.08 : 1]) };
        if (quantity.unit.startsWith("bytes")) options.axes[1].splits = (_, __, low, high) => binaryTicks(low, high);
        options.axes[1].values = (_, ticks) => ticks.map((tick) => tickText(quantity.unit, tick));
        options.hooks.setCursor = [(drawn) => { plot = drawn; hover(); }];
        // A line has no gaps where only other jobs have a value.
        const joined = tables.some(([times]) => times.length > 0) ? uPlot.join(tables) : [[], ...tables.map(() => [])];
        plot = new uPlot(options, joined, place);
        axis.plots.add(plot);
        rest();
    };
    figure.resize = () => resizePlot(plot, place);
    figure.isEmpty = () => courses.every((course) => !course || !(course.extent.max > 0 || course.extent.min < 0));
    figure.load = async () => {
        await Promise.all(jobs.map(async ({ job, metrics }, number) => {
            const own = quantitiesOfMetrics(metrics).find(({ id }) => id === quantity.id);
            if (own) courses[number] = await turn(() => loadJobCourse(jobSubject(job), own, {}, { hasRows: false }));
        }));
        figure.draw();
    };
    bindKeys(place, axis);
    return figure;
}

/** Creates the charts of the important quantities that any of the jobs has. */
export function comparedCharts(jobs) {
    const styles = stylesOf(jobs);
    const quantities = new Map();
    for (const { metrics } of jobs) {
        for (const quantity of quantitiesOfMetrics(metrics).filter(({ is_main }) => is_main)) {
            if (!quantities.has(quantity.id)) quantities.set(quantity.id, quantity);
        }
    }
    const data = { begin_s: 0, span_s: Math.max(...jobs.map(({ span_s }) => span_s)), bands: [], marks: [] };
    const axis = timeAxis(data);
    axis.isClock = false;
    const offsets = jobs.map(() => 0);
    const figures = [...quantities.values()].map((quantity) => overlay(quantity, jobs, styles, axis, data, offsets));
    const phases = commonPhases(jobs);
    const align = element("select", {}, element("option", { value: "" }, "the start of the jobs"),
        ...phases.map((name) => element("option", { value: name }, `the phase ${name}`)));
    const reset = element("button", { type: "button" }, "Whole time");
    reset.addEventListener("click", axis.reset);
    align.addEventListener("change", () => {
        const bandOf = ({ bands }) => bands.find(({ name }) => name === align.value) ?? { begin_s: 0, end_s: 0 };
        jobs.forEach((job, number) => { offsets[number] = bandOf(job).begin_s; });
        const lengths = jobs.map((job) => (align.value ? bandOf(job).end_s - bandOf(job).begin_s : job.span_s));
        data.span_s = Math.max(...lengths, 1e-3);
        axis.range = [0, data.span_s];
        figures.forEach((figure) => figure.draw());
        axis.reset();
    });
    const controls = element("div", { className: "controls" }, element("label", { hidden: phases.length === 0 }, "Time since the begin of ", align), reset);
    const remark = element("p", { className: "soft" });
    const place = element("section", {}, element("h2", { id: "courses" }, "Over time"), legend(jobs, styles), controls, element("div", { className: "grid compared" }, ...figures), remark);
    place.setAttribute("aria-labelledby", "courses");
    place.hidden = figures.length === 0;
    const redraw = () => figures.forEach((figure) => figure.draw());
    prefersDark.addEventListener("change", redraw);
    isNarrow.addEventListener("change", redraw);
    let loads = Promise.resolve();
    place.begin = () => {
        redraw();
        new ResizeObserver(() => figures.forEach((figure) => figure.resize())).observe(place);
        loads = Promise.all(figures.map((figure) => figure.load())).then(() => {
            const empty = figures.filter((figure) => figure.isEmpty());
            if (empty.length === figures.length) return;
            empty.forEach((figure) => { figure.hidden = true; });
            remark.textContent = empty.length > 0 ? `Nothing in any of the jobs: ${empty.map((figure) => figure.quantity.title).join(", ")}.` : "";
        });
        // Who waits for them handles their failure.
        loads.catch(() => {});
    };
    place.loaded = () => loads;
    return place;
}
