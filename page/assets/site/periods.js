// Sampling periods as text, and the steps between them.

const UNITS = [["d", 86400e6], ["h", 3600e6], ["min", 60e6], ["s", 1e6], ["ms", 1e3], ["us", 1]];

/** The steps from the shortest period to the longest, in microseconds: those of `polymeter watch`. */
const STEPS_US = [100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 3e7, 6e7, 3e8, 3.6e9, 8.64e10];

/** Ending of a period whose windows have a histogram. */
const HISTOGRAM = "/histogram";

/** Tells whether the windows of a period have a histogram. */
export function hasHistogram(text) {
    return text.endsWith(HISTOGRAM);
}

/** Returns microseconds of a period such as `500ms`, of one with windows such as `1ms/1s` those between two samples; null if it is none. */
export function periodUs(text) {
    const [, number, unit] = /^(\d+)([a-z]+)(\/\d+[a-z]+(\/histogram)?)?$/.exec(text ?? "") ?? [];
    const factor = UNITS.find(([name]) => name === unit)?.[1];
    return factor ? Number(number) * factor : null;
}

/** Returns microseconds between two values that are sent: the length of the windows, or the period. */
export function rowUs(text) {
    return periodUs((text ?? "").replace(HISTOGRAM, "").split("/").at(-1));
}

/** Formats a period with the windows of another one, and their histogram, where these are multiples of it. */
export function withWindow(us, windowUs, isHistogram = false) {
    const isWindow = windowUs >= 2 * us && windowUs % us === 0;
    return isWindow ? `${periodText(us)}/${periodText(windowUs)}${isHistogram ? HISTOGRAM : ""}` : periodText(us);
}

/** Formats microseconds as a period, in the form of the API. */
export function periodText(us) {
    const [unit, factor] = UNITS.find(([, size]) => us % size === 0) ?? UNITS[UNITS.length - 1];
    return `${Math.round(us / factor)}${unit}`;
}

/** Returns the next shorter period; null if there is none. */
export function shorter(us) {
    return STEPS_US.findLast((step) => step < us) ?? null;
}

/** Returns the next longer period; null if there is none. */
export function longer(us) {
    return STEPS_US.find((step) => step > us) ?? null;
}
