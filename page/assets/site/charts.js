// The charts of a job or a node: the whole time first, and finer values of the part that the reader zooms into.

import { timeAxis } from "../shared/axis.js";
import { axisControls, phaseLegend } from "../shared/controls.js";
import { chartFigure } from "../shared/course.js";
import { heatFigure, otherQuantities, quantityChoice } from "../shared/heat_map.js";
import { element } from "../shared/text.js";
import { PHASE_COLOURS, onPaper, prefersDark, setPrinting } from "../shared/theme.js";
import { chartMenu } from "./chart_menu.js";
import { linesOf } from "./columns.js";
import { loadCourse } from "./course_loader.js";
import { figureTables } from "./figure_tables.js";
import { foldable, foldedLine, mostTelling } from "./folded_charts.js";
import { notice } from "./frame.js";
import { rowsOf, meansOfRows } from "./heat_rows.js";
import { append } from "./live_course.js";
import { nodeEnds } from "./node_ends.js";

/** The time after a change of the axis, in milliseconds, within which another one delays the loading of finer values. */
const SETTLED_MS = 120;

/** Live points of a chart, after which it is loaded anew, in equal parts of the time. */
const LIVE_POINTS_MAX = 300;

/** The time for which a frame is waited for, in milliseconds: hidden pages have none. */
const FRAME_MS = 100;

/** Returns a promise that ends when the present contents of the page are visible. */
function painted() {
    return new Promise((done) => {
        setTimeout(done, FRAME_MS);
        requestAnimationFrame(() => setTimeout(done));
    });
}

/** The charts that a phone shows at first. */
const NARROW_CHARTS = 6;
const isNarrow = matchMedia("(max-width: 46rem)");

const NOTHING = { begin_s: 0, end_s: 1, times: [], lines: [[], [], []], means: [], extent: { min: null, mean: null, max: null }, isRaw: false };

/**
 * Creates the charts of a subject (`course_loader.js`). `quantities` is not empty. `id` and `title` are those of
 * the section; without a title it belongs to another one. `requests` has what was requested by the id of the
 * quantity, and `rangeLink` returns the address of the page with a range.
 */
export function subjectCharts(subject, quantities, nodes, { id = "charts", title = "Over time", requests = {}, rangeLink = null } = {}) {
    const data = {
        begin_s: subject.started_us / 1e6, span_s: 1e-3, is_of_one_node: nodes.length < 2, rows: rowsOf(nodes), charts: [], bands: [], marks: [], phaseColours: new Map(),
    };
    const axis = timeAxis(data);
    data.charts = quantities.map((quantity) => {
        const chart = { ...quantity, heat: nodes.length > 1, whole: NOTHING, shown: NOTHING, isStale: true, requested: requests[quantity.id] ?? null };
        Object.defineProperty(chart, "extent", { get: () => chart.shown.extent });
        chart.course = () => chart.shown;
        chart.cells = () => {
            const { begin_s, end_s, means, rows } = chart.shown;
            const columns = means[0]?.length ?? 1;
            return { begin_s, end_s, columns, values: rows ? means.flat() : meansOfRows(data.rows, means, columns) };
        };
        return chart;
    });

    const important = data.charts.filter((chart) => chart.is_main);
    const others = otherQuantities(data.charts);
    const entries = important.map((chart) => ({ figure: chartFigure(data, axis, chart), chosen: () => chart, id: chart.id }));
    let proposeOther = () => {};
    if (others.length > 0) {
        let other = others[0];
        let isChosen = false;
        const figure = chartFigure(data, axis, other);
        const change = (chart) => { other = chart; figure.show(chart); load(); place.onChoice?.(); };
        const choice = quantityChoice("Metric", others, (chart) => { isChosen = true; change(chart); });
        proposeOther = (extents) => {
            const proposed = mostTelling(others, extents);
            if (isChosen || proposed === other) return;
            isChosen = true;
            choice.querySelector("select").value = String(others.indexOf(proposed));
            change(proposed);
        };
        figure.id = "any-metric";
        figure.firstChild.after(element("div", { className: "controls" }, choice));
        entries.push({ figure, chosen: () => other });
    }
    const ends = nodeEnds();
    if (nodes.length > 1) {
        const figure = heatFigure(data, axis);
        figure.append(ends);
        figure.onChoice = () => { ends.show(figure.chosen()); load(); place.onChoice?.(); };
        entries.splice(Math.min(2, entries.length), 0, { figure, chosen: () => figure.chosen(), byRow: true });
    }
    for (const { figure, chosen, byRow } of entries) figure.firstChild.after(chartMenu(data, axis, chosen, { byRow, rangeLink }));
    let folded = new Map();
    /** Hides the folded charts, and on a phone those beyond the first. */
    const fold = () => {
        const others = entries.filter(({ id }) => !folded.has(id));
        const further = isNarrow.matches ? others.slice(NARROW_CHARTS) : [];
        entries.forEach((entry) => { entry.figure.hidden = (folded.has(entry.id) || further.includes(entry)) && !line.areShown(); });
        line.show(folded, further.length);
    };
    const line = foldedLine(fold);
    isNarrow.addEventListener("change", fold);
    fold();

    // Only charts that the reader sees are loaded.
    const seen = new Set(entries.slice(0, 1).map(({ figure }) => figure));
    const observer = new IntersectionObserver((changes) => {
        for (const { target, isIntersecting } of changes) {
            if (isIntersecting) seen.add(target);
            else seen.delete(target);
        }
        load();
    }, { rootMargin: "200px" });

    let stop = new AbortController();
    let isZoomed = false;
    let isClosed = false;
    const refresh = (chart) => entries.filter(({ chosen }) => chosen() === chart).forEach(({ figure }) => {
        figure.refresh();
        if (figure.contains(ends)) ends.show(chart);
    });
    // The rows are most of an answer. Those of one node are what the first request of the page asks for.
    const needsRows = (chart) => nodes.length < 2 || tables.open || entries.some(({ byRow, chosen }) => byRow && chosen() === chart);
    const loadOne = async (chart, signal) => {
        const hasRows = needsRows(chart);
        const range = isZoomed ? axis.range.slice() : null;
        // Lines reach the edges of the chart.
        const margin = range ? (range[1] - range[0]) / 300 : 0;
        try {
            const course = await loadCourse(subject, chart, nodes, range && [Math.max(range[0] - margin, 0), range[1] + margin], { signal, hasRows });
            if (signal.aborted) return;
            chart.isStale = false;
            chart.hasRows = hasRows;
            chart.shown = course;
            data.rows = course.rows ?? data.rows;
            chart.livePoints = 0;
            if (!range) {
                chart.whole = course;
                grow(course.until_s);
            }
            refresh(chart);
            place.dataset.loaded = String(Number(place.dataset.loaded ?? 0) + 1);
            tables.show();
            notice("charts", "");
        } catch (error) {
            if (!signal.aborted) notice("charts", `Values of ${chart.title} cannot be loaded: ${error.message}`);
        }
    };
    /** Loads the visible charts whose values are not those of the present range, or lack rows. */
    const load = () => {
        const charts = new Set(entries.filter(({ figure }) => seen.has(figure)).map(({ chosen }) => chosen()));
        const lacks = (chart) => chart.isStale || (needsRows(chart) && !chart.hasRows);
        return Promise.all([...charts].filter((chart) => lacks(chart) && chart.loading !== stop.signal).map((chart) => {
            chart.loading = stop.signal;
            // Meanwhile the reader may have chosen it for the heat map.
            const hasMissed = () => !chart.isStale && lacks(chart);
            return loadOne(chart, stop.signal).finally(() => { chart.loading = null; }).then(() => (hasMissed() ? load() : null));
        }));
    };
    const invalidate = async () => {
        stop.abort();
        stop = new AbortController();
        for (const chart of data.charts) chart.isStale = true;
        const { signal } = stop;
        place.dataset.busy = "true";
        await load();
        if (signal.aborted) return;
        // For measurements: the time from the change of the axis until finer values are drawn.
        place.dataset.busy = "false";
        if (isZoomed) place.dataset.zoomed = String(performance.now() - changed_at);
    };
    /** Lets the time of a running job grow. Charts that show its end follow. */
    const grow = (elapsed_s) => {
        if (!(elapsed_s > data.span_s)) return;
        const wasFull = axis.isFull();
        data.span_s = elapsed_s;
        if (wasFull) axis.show(0, data.span_s);
    };

    let settling = null;
    let changed_at = -SETTLED_MS;
    axis.listeners.push(() => {
        const nowZoomed = !axis.isFull();
        if (!nowZoomed && !isZoomed) return;
        if (!nowZoomed) {
            for (const chart of data.charts) chart.shown = chart.whole;
            entries.forEach(({ figure, chosen }) => { if (chosen().whole !== NOTHING) figure.refresh(); });
        }
        isZoomed = nowZoomed;
        clearTimeout(settling);
        const now = performance.now();
        settling = setTimeout(invalidate, now - changed_at < SETTLED_MS ? SETTLED_MS : 0);
        changed_at = now;
    });

    const chosen = () => [...new Set(entries.map((entry) => entry.chosen()))];
    const loadAll = () => {
        entries.forEach(({ figure }) => seen.add(figure));
        return load();
    };
    const tables = figureTables(`${id}-figures`, { data, axis, nodes, chosen, loadAll });
    axis.listeners.push(tables.show);
    // The text alternative of each picture.
    for (const { figure } of entries) figure.querySelector(".plot").setAttribute("aria-details", tables.id);

    const redraw = () => entries.forEach(({ figure }) => figure.draw());
    const legend = element("div");
    const controls = axisControls(data, axis, redraw);
    const help = element("p", { className: "remark" }, data.is_of_one_node
        ? "The line is the mean, the area the range of the values."
        : "The line is the median over the nodes, the area the range from the node with the least to the one with the most.",
        " Times without samples are gaps. ",
        element("span", { className: "middle" }, "Drag over a chart to zoom, double-click to show all; with the keyboard: + − ← → 0."));
    const heading = title === null ? [] : [element("h2", { id }, title)];
    const place = element(title === null ? "div" : "section", { className: "charts" }, ...heading, controls, legend,
        element("div", { className: "grid" }, ...entries.map(({ figure }) => figure)), line, help, tables);
    if (title !== null) place.setAttribute("aria-labelledby", id);

    place.dataset.busy = "false";
    place.data = data;
    place.axis = axis;
    /** Loads and draws the first chart. The others follow when it is visible. */
    place.begin = async () => {
        grow(((subject.ended_us ?? Date.now() * 1000) - subject.started_us) / 1e6);
        axis.changed();
        // The first chart has its values before any other is drawn.
        await load();
        painted().then(beginAll);
    };
    const beginAll = () => {
        if (isClosed) return;
        entries.forEach(({ figure }) => figure.begin());
        entries.forEach(({ figure }) => observer.observe(figure));
        new ResizeObserver(() => entries.forEach(({ figure }) => figure.resize())).observe(place);
        const print = (printing) => { setPrinting(printing); redraw(); };
        addEventListener("beforeprint", () => print(true));
        addEventListener("afterprint", () => print(false));
        prefersDark.addEventListener("change", redraw);
        onPaper.addEventListener("change", () => print(onPaper.matches));
    };
    /** Stops loading, since the charts are replaced. */
    place.close = () => {
        isClosed = true;
        observer.disconnect();
        stop.abort();
    };
    /** Folds the charts of quantities that do not change into one line, and proposes a metric for the chart that the reader may choose. */
    place.fold = (extents) => {
        folded = foldable(quantities, extents);
        fold();
        proposeOther(extents);
    };
    /** Sets the phases and marks. */
    place.mark = ({ bands, marks }) => {
        const names = [...new Set(bands.map((band) => band.name))];
        Object.assign(data, { bands, marks });
        data.phaseColours = new Map(names.map((name, number) => [name, PHASE_COLOURS[number % PHASE_COLOURS.length]]));
        legend.replaceChildren(...(names.length > 0 ? [phaseLegend(data)] : []));
        // The scales make room for the names of phases.
        for (const plot of axis.plots) plot?.setData(plot.data);
    };
    /** Appends the newest values of a stream, of a time in microseconds since the epoch. */
    place.extend = (live, time_us) => {
        const at_s = (time_us - subject.started_us) / 1e6;
        grow(at_s);
        for (const chart of data.charts.filter(({ whole }) => whole !== NOTHING)) {
            const found = linesOf(live.at(chart, nodes).map((values) => values.map((value) => [value]))).map(([value]) => value);
            // Without a value that was there before, a gap begins.
            if (found[1] === null && !chart.livePoints) continue;
            if (!append(chart.whole, at_s, found, chart.isRate, !chart.livePoints)) continue;
            chart.livePoints = (chart.livePoints ?? 0) + 1;
            if (chart.livePoints > LIVE_POINTS_MAX) chart.isStale = true;
            if (chart.shown === chart.whole) refresh(chart);
        }
        place.dataset.live = String(Number(place.dataset.live ?? 0) + 1);
        if (!isZoomed) load();
    };
    /** Loads newer values, unless the reader looks at a part of the time that is over. */
    place.update = () => {
        const isAtEnd = axis.isFull() || axis.range[1] >= data.span_s * 0.999;
        return isAtEnd ? invalidate() : null;
    };
    /** Returns the quantities that are shown. */
    place.chosen = chosen;
    /** Returns the length of the parts of the time that are shown, in seconds. */
    place.part_s = () => entries[0].chosen().shown.part_s ?? 1;
    return place;
}
