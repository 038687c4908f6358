// The roofline of a job: its operations and its memory traffic against the roofs of its nodes.

import { drawing, duration, element, plainNumber, threeDigits, tickText, valueText } from "../shared/text.js";

const WIDTH = 420;
const HEIGHT = 270;
/** The space for the ticks: left, right, top, bottom. */
const [LEFT, RIGHT, TOP, BOTTOM] = [82, 12, 12, 38];
/** Parts that are drawn and listed. */
const SHOWN_MAX = 20;
const RADIUS = 8;

/** The distance between a point and the edge, as an exponent. */
const MARGIN = 0.15;

/** Returns the powers of ten around some values, as exponents. */
function decades(values) {
    const exponents = values.map(Math.log10);
    return [Math.floor(Math.min(...exponents) - MARGIN), Math.ceil(Math.max(...exponents) + MARGIN)];
}

/** Draws the roofs, and the parts as numbers that the table explains. */
function picture({ memory_bytes_per_s: memory, double_flop_per_s: double, single_flop_per_s: single, parts }) {
    const drawn = parts.map((part, position) => ({ ...part, number: position + 1 })).filter((part) => part.flop_per_byte > 0);
    const [firstX, lastX] = decades([...drawn.map((part) => part.flop_per_byte), double / memory / 4, single / memory * 4]);
    const [firstY, lastY] = decades([...drawn.map((part) => part.flop_per_s), double / 8, single * 1.2]);
    const x = (value) => LEFT + (Math.log10(value) - firstX) / (lastX - firstX) * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (Math.log10(value) - firstY) / (lastY - firstY) * (HEIGHT - TOP - BOTTOM);
    const [least, most, low] = [10 ** firstX, 10 ** lastX, 10 ** firstY];
    // The roof of the memory enters the picture on the left or from below.
    const begin = Math.max(least, low / memory);
    const roof = (peak) => `M${x(begin)} ${y(begin * memory)}L${x(peak / memory)} ${y(peak)}L${x(most)} ${y(peak)}`;
    const range = (first, last) => Array.from({ length: last - first + 1 }, (_, step) => 10 ** (first + step));
    const ticks = [
        ...range(firstX, lastX).flatMap((value) => [
            drawing("path", { class: "grid-line", d: `M${x(value)} ${TOP}V${HEIGHT - BOTTOM}` }),
            drawing("text", { x: x(value), y: HEIGHT - BOTTOM + 14, "text-anchor": "middle" }, tickText("", value)),
        ]),
        ...range(firstY, lastY).flatMap((value) => [
            drawing("path", { class: "grid-line", d: `M${LEFT} ${y(value)}H${WIDTH - RIGHT}` }),
            drawing("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, tickText("flop/s", value)),
        ]),
        drawing("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 5, "text-anchor": "middle" }, "FLOP/byte"),
    ];
    const points = drawn.map((part) => drawing("g", { class: part.phase === null ? "whole" : "phase", transform: `translate(${x(part.flop_per_byte)} ${y(part.flop_per_s)})` },
        drawing("circle", { r: RADIUS }), drawing("text", { y: 4, "text-anchor": "middle" }, String(part.number))));
    const label = `Roofline: ${drawn.length} points under the roofs ${valueText("bytes/s", memory)} and ${valueText("flop/s", double)}; the table has their figures.`;
    return drawing("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "roofline", role: "img", "aria-label": label },
        ...ticks, drawing("path", { class: "roof soft-roof", d: roof(single) }), drawing("path", { class: "roof", d: roof(double) }), ...points);
}

function row(part, position) {
    const name = part.phase === null ? "(whole job)" : element("bdi", {}, part.phase);
    const cells = [
        [duration(part.time_s), "number middle"], [valueText("flop/s", part.flop_per_s), "number"], [valueText("bytes/s", part.bytes_per_s), "number middle"],
        [part.flop_per_byte === null ? "–" : plainNumber(part.flop_per_byte), "number middle"], [part.bound, "middle"], [`${threeDigits(part.roof_percent)} %`, "number"],
    ];
    return element("tr", {}, element("th", { scope: "row" }, `${position + 1} `, name), ...cells.map(([cell, className]) => element("td", { className }, cell)));
}

/** Returns the section of a roofline. */
export function rooflineSection(roofline) {
    const parts = roofline.parts.slice(0, SHOWN_MAX);
    const contents = [];
    if (parts.length > 0) {
        const heads = [["Phase", ""], ["Time", "number middle"], ["FLOP/s", "number"], ["Memory", "number middle"], ["FLOP/byte", "number middle"], ["Bound by", "middle"], ["Of the roof", "number"]];
        const head = element("tr", {}, ...heads.map(([name, className]) => element("th", { scope: "col", className }, name)));
        const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...parts.map(row)));
        table.setAttribute("aria-labelledby", "roofline");
        const [double, single] = [roofline.double_flop_per_s, roofline.single_flop_per_s].map((peak) => valueText("flop/s", peak));
        const more = roofline.parts.length > SHOWN_MAX ? ` ${SHOWN_MAX} of ${roofline.parts.length} are shown.` : "";
        const remark = `Rates are means of a node. Its roofs: memory ${valueText("bytes/s", roofline.memory_bytes_per_s)}, double precision ${double}, `
            + `single precision ${single} (dashed); shares are those of double precision.${more}`;
        contents.push(picture({ ...roofline, parts }), element("div", { className: "scroll" }, table), element("p", { className: "remark" }, remark));
    }
    for (const { reason, nodes, node } of roofline.left_out) {
        const more = nodes > 1 ? ` and ${nodes - 1} more ${nodes > 2 ? "nodes" : "node"}` : "";
        contents.push(element("p", { className: "remark" }, "Without ", element("bdi", {}, node), `${more}: ${reason}.`));
    }
    const section = element("section", {}, element("h2", { id: "roofline" }, "Roofline"), ...contents);
    section.setAttribute("aria-labelledby", "roofline");
    return section;
}
