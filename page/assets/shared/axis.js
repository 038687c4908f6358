// The axis of time that all charts share: its range, its ticks and its cursor.

import { clockText, dateText, duration } from "./text.js";
import { colours } from "./theme.js";

export const STEPS = [1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30,
    60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000];

/** Creates the axis. The time of the job may grow. */
export function timeAxis(data) {
    const axis = { range: [0, data.span_s], isClock: true, step: 1, plots: new Set(), listeners: [] };

    /** Sets the range of all charts, within the time of the job. */
    axis.show = (begin, end) => {
        const shortest = Math.max(data.span_s / 1e5, 1e-6);
        const length = Math.min(Math.max(end - begin, shortest), data.span_s);
        const first = Math.min(Math.max(begin, 0), data.span_s - length);
        axis.range = [first, first + length];
        for (const plot of axis.plots) plot.setScale("x", { min: axis.range[0], max: axis.range[1] });
        axis.changed();
    };
    axis.reset = () => axis.show(0, data.span_s);
    axis.zoom = (factor, middle = (axis.range[0] + axis.range[1]) / 2) => {
        const [begin, end] = axis.range;
        axis.show(middle - (middle - begin) * factor, middle + (end - middle) * factor);
    };
    axis.move = (share) => {
        const by = (axis.range[1] - axis.range[0]) * share;
        axis.show(axis.range[0] + by, axis.range[1] + by);
    };
    axis.changed = () => axis.listeners.forEach((listener) => listener());
    axis.isFull = () => axis.range[0] <= 0 && axis.range[1] >= data.span_s;

    /** Returns the ticks of a range: round times of the reader's clock, or round times since the start. */
    axis.ticks = (begin, end, width) => {
        const wanted = (end - begin) / Math.max(2, Math.floor(width / 90));
        // Somewhat closer ticks are better than far fewer.
        axis.step = STEPS.find((step) => step >= wanted * 0.9) ?? STEPS[STEPS.length - 1];
        const zone = new Date((data.begin_s + begin) * 1000).getTimezoneOffset() * 60;
        const shift = axis.isClock ? data.begin_s - zone : 0;
        const ticks = [];
        for (let tick = Math.ceil((begin + shift) / axis.step - 1e-6); tick * axis.step - shift <= end; tick += 1) {
            ticks.push(tick * axis.step - shift);
        }
        return ticks;
    };
    axis.tickText = (seconds) => (axis.isClock ? clockText(data.begin_s + seconds, axis.step) : duration(seconds));

    /** Formats a time: by the clock, and since the start. */
    axis.text = (seconds) => {
        const step = data.span_s < 10 ? 1e-3 : 1;
        const date = data.span_s > 86400 ? `${dateText(data.begin_s + seconds)}` : clockText(data.begin_s + seconds, step);
        return `${date} (${duration(seconds)} after the start)`;
    };
    return axis;
}

/** Lets the keys + - 0 and the arrows change the range. */
export function bindKeys(target, axis, more = {}) {
    target.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.altKey || event.metaKey) return;
        const actions = {
            "+": () => axis.zoom(0.5), "=": () => axis.zoom(0.5), "-": () => axis.zoom(2), "_": () => axis.zoom(2),
            "0": axis.reset, Escape: axis.reset, ArrowLeft: () => axis.move(-0.2), ArrowRight: () => axis.move(0.2), ...more,
        };
        const action = actions[event.key];
        if (!action) return;
        event.preventDefault();
        action();
    });
}

/** Returns the options that all charts have in common. */
export function baseOptions(data, axis, size) {
    const paint = colours();
    const font = "12px system-ui, sans-serif";
    const common = { stroke: paint.text, font, grid: { stroke: paint.grid, width: 1 }, ticks: { stroke: paint.grid, width: 1, size: 5 } };
    return {
        ...size,
        legend: { show: false },
        // Half of the last tick's text.
        padding: [8, data.span_s < 60 ? 40 : 22, 0, 0],
        cursor: {
            sync: { key: "time", scales: ["x", null] },
            drag: { x: true, y: false, setScale: false },
            points: { show: false },
            y: false,
            bind: { dblclick: () => () => axis.reset() },
        },
        scales: { x: { time: false, range: () => axis.range.slice() } },
        axes: [
            {
                ...common,
                size: 34,
                splits: (plot, _, begin, end) => axis.ticks(begin, end, plot.bbox.width / devicePixelRatio),
                values: (_, ticks) => ticks.map(axis.tickText),
            },
            { ...common, size: 74 },
        ],
        hooks: {
            setSelect: [(plot) => {
                const { left, width } = plot.select;
                if (width > 2) axis.show(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
                plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            }],
        },
    };
}

/** Draws the phases behind a chart, with their names where there is room. */
export function drawPhases(plot, data, hasNames) {
    const { ctx, bbox } = plot;
    const paint = colours();
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const band of data.bands) {
        const left = plot.valToPos(band.begin_s, "x", true);
        const width = Math.max(plot.valToPos(band.end_s, "x", true) - left, 1);
        ctx.fillStyle = data.phaseColours.get(band.name);
        ctx.globalAlpha = 0.16;
        ctx.fillRect(left, bbox.top, width, bbox.height);
        ctx.globalAlpha = 0.9;
        ctx.fillRect(left, bbox.top, width, 3 * devicePixelRatio);
        if (!hasNames) continue;
        ctx.globalAlpha = 1;
        ctx.fillStyle = paint.text;
        ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
        ctx.textBaseline = "top";
        ctx.textAlign = "left";
        const begin = Math.max(left, bbox.left);
        const room = Math.min(left + width, bbox.left + bbox.width) - begin - 8 * devicePixelRatio;
        const text = fitted(ctx, band.name, room);
        if (text) ctx.fillText(text, begin + 4 * devicePixelRatio, bbox.top + 6 * devicePixelRatio);
    }
    ctx.globalAlpha = 1;
    ctx.strokeStyle = paint.mark;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const mark of data.marks) {
        const left = Math.round(plot.valToPos(mark.at_s, "x", true)) + 0.5;
        ctx.beginPath();
        ctx.moveTo(left, bbox.top);
        ctx.lineTo(left, bbox.top + bbox.height);
        ctx.stroke();
    }
    ctx.restore();
}

/** Shortens a text to a width; empty if not even a few letters fit. */
function fitted(ctx, text, room) {
    if (ctx.measureText(text).width <= room) return text;
    const letters = Array.from(text);
    while (letters.length > 3) {
        letters.pop();
        const shortened = `${letters.join("")}…`;
        if (ctx.measureText(shortened).width <= room) return shortened;
    }
    return "";
}

/** Returns the names of the phases and marks at a time. */
export function phasesAt(data, seconds) {
    const bands = data.bands.filter((band) => band.begin_s <= seconds && seconds <= band.end_s).map((band) => band.name);
    const near = data.span_s / 200;
    const marks = data.marks.filter((mark) => Math.abs(mark.at_s - seconds) < near).map((mark) => mark.name);
    return [...new Set(bands), ...marks];
}
