// The figures of the page.

/** Replaces times in UTC by those of the reader's clock, and adds those of the clock to times since the start. */
function localTimes() {
    for (const time of document.querySelectorAll("time[data-us]")) {
        const seconds = Number(time.dataset.us) / 1e6;
        time.title = time.textContent;
        time.textContent = `${dateText(seconds)} ${zoneText(seconds)}`;
    }
    for (const time of document.querySelectorAll("span[data-us]")) {
        const seconds = Number(time.dataset.us) / 1e6;
        time.title = dateText(seconds);
        time.append(`, ${clockText(seconds, 1)}`);
    }
}

function build(data, place) {
    const names = [...new Set(data.bands.map((band) => band.name))];
    data.phaseColours = new Map(names.map((name, number) => [name, PHASE_COLOURS[number % PHASE_COLOURS.length]]));
    const axis = timeAxis(data);
    const important = data.charts.filter((chart) => chart.is_main);
    const others = otherQuantities(data.charts);
    const figures = important.map((chart) => chartFigure(data, axis, chart));
    if (others.length > 0) {
        const figure = chartFigure(data, axis, others[0]);
        figure.id = "any-metric";
        figure.firstChild.after(element("div", { className: "controls" }, quantityChoice("Metric", others, (chart) => figure.show(chart))));
        figures.push(figure);
    }
    if (data.charts.some((chart) => chart.heat)) figures.push(heatFigure(data, axis));
    figures.push(distributionFigure(data));
    const redraw = () => figures.forEach((figure) => figure.draw());
    const shown = data.is_of_one_node
        ? "The line is the mean, the area the range of the values."
        : "The line is the median over the nodes, the area the range from the node with the least to the one with the most.";
    const help = element("p", { className: "remark" },
        `${shown} Drag over a chart to zoom, double-click to show all; with the keyboard: + − ← → 0.`);
    place.replaceChildren(help, axisControls(data, axis, redraw));
    if (names.length > 0) place.append(phaseLegend(data));
    place.append(element("div", { className: "grid" }, ...figures));
    figures.forEach((figure) => figure.begin());
    axis.changed();
    for (const link of document.querySelectorAll("a[data-from]")) {
        link.addEventListener("click", () => axis.show(Number(link.dataset.from), Number(link.dataset.until)));
    }
    new ResizeObserver(() => figures.forEach((figure) => figure.resize())).observe(place);
    const print = (printing) => { setPrinting(printing); redraw(); };
    addEventListener("beforeprint", () => print(true));
    addEventListener("afterprint", () => print(false));
    prefersDark.addEventListener("change", redraw);
    onPaper.addEventListener("change", () => print(onPaper.matches));
    document.documentElement.dataset.charts = String(figures.length);
}

localTimes();
const place = document.getElementById("figures");
if (place) {
    readData().then((data) => data && build(data, place)).catch((error) => {
        place.replaceChildren(element("p", { className: "remark" },
            `The charts cannot be drawn: ${error.message}. They need a browser from 2023 or later; the tables contain their figures.`));
        throw error;
    });
}
