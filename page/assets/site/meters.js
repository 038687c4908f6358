// Meters: the share of its resources that a job used, as a bar, a number and a word.

import { drawing, element } from "../shared/text.js";

const LEVELS = ["plain", "good", "warning", "critical"];

const classOf = (meter) => (LEVELS.includes(meter?.level) ? meter.level : "plain");

/** Draws a bar for a share; without a share it is faint. */
export function bar(share, level) {
    const width = Number.isFinite(share) ? Math.min(Math.max(share, 0), 1) * 100 : 0;
    return drawing("svg", {
        viewBox: "0 0 100 8", preserveAspectRatio: "none", class: Number.isFinite(share) ? "bar" : "bar unknown", "aria-hidden": "true",
    }, drawing("rect", { class: "track", width: 100, height: 8 }), drawing("rect", { class: level, width, height: 8 }));
}

/** Formats a share. */
export function percentText(share) {
    return Number.isFinite(share) ? `${Math.round(share * 100)} %` : "–";
}

/** Returns a meter that fits into a cell of a table. */
export function smallMeter(meter) {
    const level = classOf(meter);
    const made = element("div", { className: "small-meter", title: meter?.text ?? "" }, bar(meter?.share, level),
        element("span", { className: "share" }, percentText(meter?.share)));
    if (meter?.word) made.append(element("span", { className: "unseen" }, `, ${meter.word}`));
    return made;
}

/** Returns the list of all meters of a job. */
export function meterList(meters) {
    // Most jobs have no GPUs.
    const shown = meters.filter((meter) => meter.label !== "GPU" || Number.isFinite(meter.share));
    return element("ul", { className: "meters" }, ...shown.map((meter) => element("li", {},
        element("span", { className: "label" }, meter.label),
        element("span", { className: "share" }, percentText(meter.share)),
        bar(meter.share, classOf(meter)),
        element("span", { className: `level ${classOf(meter)}` }, meter.word ?? ""),
        element("span", { className: "text" }, meter.text))));
}
