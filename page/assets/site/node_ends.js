// The nodes of a job with the highest and with the lowest mean of a quantity, where there are many nodes.

import { element, valueText } from "../shared/text.js";

function list(title, nodes, unit) {
    const rows = nodes.map(({ node, mean }) => element("tr", {},
        element("th", { scope: "row" }, element("a", { href: `node?name=${encodeURIComponent(node)}` }, element("bdi", {}, node))),
        element("td", { className: "number" }, valueText(unit, mean))));
    return element("table", {}, element("caption", {}, title), element("tbody", {}, ...rows));
}

/** Creates the lists. `show(chart)` fills them with the visible time of a chart. */
export function nodeEnds() {
    const place = element("div", { className: "two node-ends", hidden: true });
    place.show = (chart) => {
        const { highest, lowest } = chart.shown;
        place.hidden = !highest?.length;
        if (place.hidden) return;
        place.replaceChildren(list("Highest means", highest, chart.unit), list("Lowest means", lowest, chart.unit));
    };
    return place;
}
