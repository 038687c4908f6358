// The figures of the charts as a table: for readers without pictures.

import { element, valueText } from "../shared/text.js";

/** Creates the table, which is computed when it is opened. */
export function quantityTable(charts) {
    const contents = element("div", { className: "scroll" });
    const place = element("details", { className: "figures" }, element("summary", {}, "Figures of the charts as a table"), contents);
    place.show = () => {
        if (!place.open) return;
        const loaded = charts.data.charts.filter((chart) => chart.shown.extent.mean !== null);
        const { axis } = charts;
        const caption = axis.isFull() ? "The whole time" : `${axis.text(axis.range[0])} to ${axis.text(axis.range[1])}`;
        const rows = loaded.map((chart) => element("tr", {}, element("th", { scope: "row" }, chart.title),
            ...["min", "mean", "max"].map((name) => element("td", { className: "number" }, valueText(chart.unit, chart.extent[name])))));
        contents.replaceChildren(element("table", {}, element("caption", {}, caption), element("thead", {}, element("tr", {},
            ...["Quantity", "min", "mean", "max"].map((name, column) => element("th", { scope: "col", className: column ? "number" : "" }, name)))),
            element("tbody", {}, ...rows)));
    };
    place.addEventListener("toggle", place.show);
    return place;
}
