// The data of the charts: a JSON object, and compressed numbers of 16 bits.

/** Returns the value of a number of 16 bits: IEEE 754 binary16; null if it is none. */
function fromHalf(bits) {
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    if (exponent === 31) return null;
    const size = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
    return bits & 0x8000 ? -size : size;
}

/** Reads the data of the page; null if there is none. */
async function readData() {
    const object = document.getElementById("charts-data");
    const text = document.getElementById("charts-values");
    if (!object || !text) return null;
    const data = JSON.parse(object.textContent);
    const compressed = Uint8Array.from(atob(text.textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const view = new DataView(await new Response(stream).arrayBuffer());
    data.begin_s = data.begin_us / 1e6;
    // A job without duration has an axis, too.
    data.span_s = data.span_s > 0 ? data.span_s : 1e-3;
    data.read = ({ at, count, scale }) => {
        const values = new Array(count);
        for (let position = 0; position < count; position += 1) {
            const value = fromHalf(view.getUint16((at + position) * 2, true));
            values[position] = value === null ? null : value * scale;
        }
        return values;
    };
    for (const chart of data.charts) {
        chart.unitText = unitText(chart.unit);
        chart.course = () => {
            const values = data.read(chart.lines);
            const lines = [0, 1, 2].map((line) => values.slice(line * chart.points, (line + 1) * chart.points));
            return { times: middles(data, chart.points), lines, isRaw: false };
        };
        chart.cells = () => ({ values: data.read(chart.heat), columns: chart.columns, begin_s: 0, end_s: data.span_s });
    }
    return data;
}

/** Returns the middles of equal parts of the time, in seconds since the start. */
function middles(data, parts) {
    return Array.from({ length: parts }, (_, part) => ((part + 0.5) / parts) * data.span_s);
}
