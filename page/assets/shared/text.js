// Numbers and times as text, and elements of the page.

/** Returns an element with properties and children. Text is never interpreted as markup. */
export function element(name, properties = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
        if (key in made && key !== "list") made[key] = value;
        else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
}

/** The namespace of SVG: that of an element of the page. */
const SVG = document.querySelector("svg").namespaceURI;

/** Returns an element of SVG with attributes and children. */
export function drawing(name, attributes = {}, ...children) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
}

/** Formats a number with three significant digits. */
export function threeDigits(value) {
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size >= 1e15 || size < 1e-4) return value.toExponential(2);
    if (size >= 99.95 || Number.isInteger(value)) return value.toFixed(0);
    return value.toFixed(size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.0995 ? 3 : 4);
}

/** Formats a number of cores or core-hours for a list. */
export function hundredths(value) {
    return value > 0 && value < 0.005 ? "<0.01" : value < 9.995 && !Number.isInteger(value) ? value.toFixed(2) : plainNumber(value);
}

function withPrefix(value, base, prefixes, unit) {
    let position = 0;
    while (Math.abs(value) >= base && position + 1 < prefixes.length) {
        value /= base;
        position += 1;
    }
    return `${threeDigits(value)} ${prefixes[position]}${unit}`.trimEnd();
}

export function bytes(value) {
    return withPrefix(value, 1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi"], "B");
}

export function plainNumber(value) {
    return Math.abs(value) < 1e4 ? threeDigits(value) : withPrefix(value, 1000, ["", "k", "M", "G", "T"], "").replace(" ", "");
}

/** Formats seconds as a duration. */
export function duration(seconds) {
    const size = Math.abs(seconds);
    if (size === 0) return "0 s";
    if (size < 1e-3) return `${threeDigits(seconds * 1e6)} µs`;
    if (size < 1) return `${threeDigits(seconds * 1e3)} ms`;
    if (size < 60) return `${threeDigits(seconds)} s`;
    const whole = Math.round(size);
    const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
    const first = parts.findIndex(([length]) => whole >= length);
    const shown = parts.slice(first, first + 2).map(([length, unit], position) => {
        const rest = position === 0 ? whole : whole % parts[first][0];
        return [Math.floor(rest / length), unit];
    });
    const text = shown.filter(([count], position) => position === 0 || count > 0);
    return (seconds < 0 ? "-" : "") + text.map(([count, unit]) => `${count} ${unit}`).join(" ");
}

/** Formats a value of a quantity. */
export function valueText(unit, value) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    switch (unit) {
        case "bytes": return bytes(value);
        case "bytes/s": return `${bytes(value)}/s`;
        case "1/s": return `${plainNumber(value)}/s`;
        case "cores": return plainNumber(value);
        case "percent": return `${threeDigits(value)} %`;
        case "s/s": return `${threeDigits(value * 100)} %`;
        case "joules": return withPrefix(value, 1000, ["", "k", "M", "G", "T"], "J");
        case "watts": return withPrefix(value, 1000, ["", "k", "M"], "W");
        case "flop/s": return withPrefix(value, 1000, ["", "k", "M", "G", "T"], "FLOP/s");
        case "hertz": return withPrefix(value, 1000, ["", "k", "M", "G"], "Hz");
        case "volts": return `${threeDigits(value)} V`;
        case "amperes": return `${threeDigits(value)} A`;
        case "rpm": return `${plainNumber(value)} rpm`;
        case "celsius": return `${threeDigits(value)} °C`;
        case "nanoseconds": return duration(value / 1e9);
        default: return plainNumber(value);
    }
}

/** Formats a tick of an axis: without needless zeros. */
export function tickText(unit, value) {
    return valueText(unit, value).replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");
}

/** Returns the unit as it is shown in a title. */
export function unitText(unit) {
    const shown = { "s/s": "% of the time", "percent": "%", "celsius": "°C", "watts": "W", "flop/s": "FLOP/s", "hertz": "Hz", "volts": "V", "amperes": "A", "count": "", "labelled": "", "nanoseconds": "time" };
    return unit in shown ? shown[unit] : unit;
}

const twoDigits = (value) => String(value).padStart(2, "0");

/** Formats a time in the reader's zone, with the parts that a step between two times needs. */
export function clockText(seconds, step) {
    const time = new Date(seconds * 1000);
    const day = `${time.getFullYear()}-${twoDigits(time.getMonth() + 1)}-${twoDigits(time.getDate())}`;
    if (step >= 86400) return day.slice(5);
    const minutes = `${twoDigits(time.getHours())}:${twoDigits(time.getMinutes())}`;
    if (step >= 60) return minutes;
    const whole = `${minutes}:${twoDigits(time.getSeconds())}`;
    if (step >= 1) return whole;
    const digits = step >= 1e-3 ? 3 : 6;
    return `${whole}.${(seconds - Math.floor(seconds)).toFixed(digits).slice(2)}`;
}

/** Formats a date and a time in the reader's zone. */
export function dateText(seconds) {
    const time = new Date(seconds * 1000);
    return `${time.getFullYear()}-${clockText(seconds, 86400)} ${clockText(seconds, 1)}`;
}

/** Returns the reader's zone at a time, as `UTC+01:00`. */
export function zoneText(seconds) {
    const minutes = -new Date(seconds * 1000).getTimezoneOffset();
    const size = Math.abs(minutes);
    return `UTC${minutes < 0 ? "−" : "+"}${twoDigits(Math.floor(size / 60))}:${twoDigits(size % 60)}`;
}
