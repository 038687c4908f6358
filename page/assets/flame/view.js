// A flame graph with its search and its table.
import { element } from "../shared/text.js";
import { prefersDark } from "../shared/theme.js";
import { flameGraph, flameNodes } from "./graph.js";
import { functionTable } from "./table.js";

/** Returns a test for names that contain a text in any case; none for an empty text. */
function contains(text) {
    const wanted = text.trim().toLowerCase();
    return wanted === "" ? null : (node) => node.parent !== null && `${node.name} ${node.module}`.toLowerCase().includes(wanted);
}

/** Returns what is missing in `data`, as paragraphs. */
export function missingParts(data) {
    return (data.remarks ?? []).map((remark) => element("p", { className: "soft" }, `${remark}.`));
}

/** Draws the graph of `data` into a place. Returns the input of the search. */
export function showFlame(data, place) {
    const nodes = flameNodes(data);
    const readout = element("p", { id: "flame-readout", className: "readout", "aria-live": "polite" });
    const graph = flameGraph(nodes, (text) => { readout.textContent = text; });
    const found = element("span", { className: "range", "aria-live": "polite" });
    const search = element("input", { type: "search", "aria-label": "Search functions", placeholder: "Search functions" });
    const find = () => {
        const test = contains(search.value);
        const share = graph.search(test);
        found.textContent = test ? `${share} of the time` : "";
    };
    search.addEventListener("input", find);
    search.addEventListener("keydown", (event) => {
        if (event.key !== "Escape") return;
        search.value = "";
        find();
        graph.canvas.focus();
    });
    const table = functionTable(nodes.root, (name) => {
        search.value = name;
        find();
    });
    const all = element("button", { type: "button" }, "Show all");
    all.addEventListener("click", graph.reset);
    const graphPlace = element("div", { className: "flame-place" }, readout, graph.canvas);
    place.replaceChildren(
        ...missingParts(data),
        element("div", { className: "controls" }, search, found, all),
        element("div", { className: "flame-parts" }, graphPlace,
            element("div", { className: "scroll flame-table", role: "region", tabIndex: 0, "aria-label": "Functions" }, table)));
    graph.reset();
    new ResizeObserver(graph.draw).observe(graphPlace);
    prefersDark.addEventListener("change", graph.draw);
    return search;
}
