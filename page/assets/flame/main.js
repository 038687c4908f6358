// The page of a flame graph: graph, search and table.
import { element } from "../shared/text.js";
import { prefersDark } from "../shared/theme.js";
import { flameGraph, flameNodes } from "./graph.js";
import { functionTable } from "./table.js";

/** Returns a test for names that contain a text in any case; none for an empty text. */
function contains(text) {
    const wanted = text.trim().toLowerCase();
    return wanted === "" ? null : (node) => node.parent !== null && `${node.name} ${node.module}`.toLowerCase().includes(wanted);
}

/** Draws the graph of the data into a place. */
function buildFlame(data, place) {
    const nodes = flameNodes(data);
    const readout = element("p", { id: "flame-readout", className: "readout", "aria-live": "polite" });
    const graph = flameGraph(nodes, (text) => { readout.textContent = text; });
    const found = element("span", { className: "range", "aria-live": "polite" });
    const search = element("input", { type: "search", "aria-label": "Search functions", placeholder: "Search functions: /" });
    const find = () => {
        const test = contains(search.value);
        const share = graph.search(test);
        found.textContent = test ? `${share} of the time` : "";
    };
    search.addEventListener("input", find);
    const table = functionTable(nodes.root, (name) => {
        search.value = name;
        find();
    });
    const all = element("button", { type: "button", onclick: graph.reset }, "Show all");
    place.replaceChildren(
        element("div", { className: "controls" }, search, found, all),
        element("div", { className: "flame-parts" },
            element("div", { className: "flame-place" }, readout, graph.canvas),
            element("div", { className: "scroll flame-table", role: "region", tabIndex: 0, "aria-label": "Functions" }, table)));
    addEventListener("keydown", (event) => {
        if (event.key === "/" && event.target !== search) {
            search.focus();
            event.preventDefault();
        } else if (event.key === "Escape" && event.target === search) {
            search.value = "";
            find();
            graph.canvas.focus();
        }
    });
    graph.reset();
    new ResizeObserver(graph.draw).observe(graph.canvas.parentElement);
    prefersDark.addEventListener("change", graph.draw);
    document.documentElement.dataset.flame = String(data.nodes.length);
}

const flamePlace = document.getElementById("flame");
const flameData = document.getElementById("flame-data");
if (flamePlace && flameData) buildFlame(JSON.parse(flameData.textContent), flamePlace);
