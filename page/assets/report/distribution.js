// Histograms of a quantity: over time and nodes, and of the nodes' means.

const QUANTILES = ["min", "5 %", "25 %", "median", "75 %", "95 %", "max"];

/** Draws a histogram, with a table of quantiles below it. */
function histogram(title, unit, spread) {
    const { low, high, counts } = spread.histogram;
    const total = counts.reduce((sum, count) => sum + count, 0);
    const most = counts.reduce((max, count) => Math.max(max, count), 1);
    const [width, height] = [100, 50];
    const bar = width / counts.length;
    const bars = counts.map((count, number) => {
        const size = (count / most) * height;
        const from = valueText(unit, low + ((high - low) * number) / counts.length);
        const to = valueText(unit, low + ((high - low) * (number + 1)) / counts.length);
        const share = threeDigits((100 * count) / total);
        return drawing("rect", { x: number * bar, y: height - size, width: bar * 0.92, height: size },
            drawing("title", {}, document.createTextNode(`${from} to ${to}: ${count} (${share} %)`)));
    });
    const shown = spread.quantiles.map((value) => valueText(unit, value));
    const picture = drawing("svg", {
        viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: "histogram", role: "img",
        "aria-label": `${title}: ${QUANTILES.map((name, number) => `${name} ${shown[number]}`).join(", ")}`,
    }, ...bars);
    const ends = element("div", { className: "stops" }, element("span", {}, valueText(unit, low)), element("span", {}, valueText(unit, high)));
    const rows = [
        element("tr", {}, ...QUANTILES.map((name) => element("th", { scope: "col" }, name))),
        element("tr", {}, ...shown.map((text) => element("td", { className: "number" }, text))),
    ];
    const table = element("table", { className: "quantiles" }, element("caption", {}, `Quantiles: ${title.toLowerCase()}`), ...rows);
    return element("div", { className: "distribution" }, element("h4", {}, title), picture, ends, element("div", { className: "scroll" }, table));
}

/** Creates the figure of the distributions. */
function distributionFigure(data) {
    const charts = data.charts.filter((chart) => chart.over_time);
    const place = element("div", { className: "distributions" });
    const show = (chart) => {
        const parts = [histogram(data.is_of_one_node ? "Values over time" : "Values over nodes and time", chart.unit, chart.over_time)];
        if (chart.over_nodes) parts.push(histogram("Means of the nodes", chart.unit, chart.over_nodes));
        place.replaceChildren(...parts);
    };
    const controls = element("div", { className: "controls" }, quantityChoice("Quantity", charts, show));
    const figure = element("figure", { className: "chart wide", id: "distributions" }, element("h3", {}, "Distribution"), controls, place);
    figure.begin = () => show(charts[0]);
    figure.draw = () => {};
    figure.resize = () => {};
    return figure;
}
