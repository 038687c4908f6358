// A course in a few pixels.

import { drawing } from "../shared/text.js";

const HEIGHT = 20;

/** Draws values on a scale from 0 to `most`; null values are gaps. */
export function sparkline(values, most, height = HEIGHT) {
    const width = Math.max(values.length - 1, 1);
    const y = (value) => (height - 1 - (most > 0 ? Math.min(Math.max(value / most, 0), 1) : 0) * (height - 2)).toFixed(1);
    let path = "";
    values.forEach((value, part) => {
        if (value === null) return;
        const isFirst = (values[part - 1] ?? null) === null;
        const isAlone = isFirst && (values[part + 1] ?? null) === null;
        path += `${isFirst ? "M" : "L"}${part} ${y(value)}`;
        if (isAlone) path += `h${Math.min(0.5, width)}`;
    });
    return drawing("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: "spark", "aria-hidden": "true" },
        drawing("path", { d: path, "vector-effect": "non-scaling-stroke" }));
}
