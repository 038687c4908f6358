// Charts that show nothing: which quantities of a job do not change, and the words for them.

import { element, valueText } from "../shared/text.js";

/** What is said of a quantity that is always 0, and of two together. Others are always drawn. */
const NOTHING = { cache: "no page cache", read: "nothing read", write: "nothing written", receive: "nothing received", transmit: "nothing sent",
    cpu_pressure: "no CPU pressure", memory_pressure: "no memory pressure", io_pressure: "no I/O pressure" };
const PAIRS = [["read", "write", "no I/O"], ["receive", "transmit", "no network traffic"]];

/** The value below which a quantity is not worth a chart, by unit: a pressure, the page cache, and traffic. */
const LEAST = { "s/s": 0.001, bytes: 2 ** 20, "bytes/s": 100 * 2 ** 10 };

/** Returns the value that a quantity always has; null if it changes, undefined if it has no samples. */
function constantOf({ terms }, extents) {
    const known = terms.map(({ metric, factor }) => [extents[metric], factor]).filter(([extent]) => extent);
    if (known.length === 0) return undefined;
    if (known.some(([[min, max]]) => min === null || min !== max)) return null;
    return known.reduce((sum, [[min], factor]) => sum + min * factor, 0);
}

/** Returns the words for a quantity that is always small; null for others. */
function smallText({ id, title, unit, terms }, extents) {
    const most = terms.reduce((sum, { metric, factor }) => sum + (extents[metric]?.[1] ?? Infinity) * Math.abs(factor), 0);
    if (!(most < LEAST[unit])) return null;
    const name = NOTHING[id].startsWith("no ") ? NOTHING[id].slice(3) : `${title[0].toLowerCase()}${title.slice(1)}`;
    return `${name} below ${valueText(unit, LEAST[unit])}`;
}

/** Returns the quantities that are not worth a chart, by id, with the words for each. */
export function foldable(quantities, extents) {
    const found = new Map();
    for (const quantity of quantities.filter(({ id, is_main }) => is_main && NOTHING[id])) {
        const value = constantOf(quantity, extents);
        if (value === null) {
            const words = smallText(quantity, extents);
            if (words) found.set(quantity.id, words);
            continue;
        }
        found.set(quantity.id, value === undefined ? `no samples of “${quantity.title}”`
            : value === 0 ? NOTHING[quantity.id] : `${quantity.title} always ${valueText(quantity.unit, value)}`);
    }
    return found;
}

/** Returns the words of folded quantities as one sentence. */
export function foldedText(found) {
    const words = new Map(found);
    for (const [one, other, together] of PAIRS) {
        if (words.get(one) !== NOTHING[one] || words.get(other) !== NOTHING[other]) continue;
        words.set(one, together);
        words.delete(other);
    }
    const text = [...words.values()].join(", ");
    return text ? `${text[0].toUpperCase()}${text.slice(1)}.` : "";
}

/** Returns the quantity for the chart that the reader may choose: what users push, or what varies most. */
export function mostTelling(others, extents) {
    const pushed = others.find(({ id }) => id.startsWith("metric:user."));
    if (pushed) return pushed;
    const variation = ({ terms: [{ metric }] }) => {
        const [min, max, mean] = extents[metric] ?? [];
        return min === null || min === undefined || !mean ? -1 : (max - min) / Math.abs(mean);
    };
    const candidates = others.filter(({ id }) => !/^metric:(agent|busiest|node)\./.test(id));
    return candidates.reduce((best, one) => (variation(one) > variation(best) ? one : best), candidates[0] ?? others[0]);
}

/** Creates the line. `toggle(areShown)` shows the folded charts, or hides them. */
export function foldedLine(toggle) {
    const text = element("span");
    const button = element("button", { type: "button" });
    const place = element("p", { className: "folded", hidden: true }, text, " ", button);
    let areShown = false;
    const label = () => {
        button.textContent = areShown ? "Hide these charts" : "Show these charts";
        button.setAttribute("aria-expanded", String(areShown));
    };
    button.addEventListener("click", () => { areShown = !areShown; label(); toggle(areShown); });
    label();
    place.areShown = () => areShown;
    /** Tells which quantities are folded, and the number of further charts. */
    place.show = (found, further) => {
        text.textContent = [foldedText(found), ...(further > 0 ? [`Further charts: ${further}.`] : [])].filter(Boolean).join(" ");
        place.hidden = found.size + further === 0;
    };
    return place;
}
