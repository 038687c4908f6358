// The map of all nodes: one cell each, coloured by a quantity.

import { element, valueText } from "../shared/text.js";
import { viridis } from "../shared/theme.js";
import { NODE_QUANTITIES } from "./node_values.js";

/** The number of nodes up to which their names are shown beside the cells. */
const NAMED_NODES = 24;

/** Creates the map. Arrow keys move between the cells, of which one is in the order of the Tab key. */
export function nodeMap() {
    const cells = new Map();
    let values = new Map();
    const choice = element("select", {}, ...NODE_QUANTITIES.map(({ id, title }) => element("option", { value: id }, title)));
    const grid = element("div", { className: "node-map", role: "group" });
    grid.setAttribute("aria-label", "Nodes; the arrow keys move between them");
    const readout = element("p", { className: "readout" });
    const low = element("span");
    const high = element("span");
    const gradient = element("canvas", { width: 64, height: 1, className: "gradient" });
    gradient.setAttribute("aria-hidden", "true");
    const ctx = gradient.getContext("2d");
    for (let left = 0; left < 64; left += 1) {
        ctx.fillStyle = viridis(left / 63);
        ctx.fillRect(left, 0, 1, 1);
    }
    const legend = element("div", { className: "heat-legend" }, gradient, element("div", { className: "stops" }, low, high));
    const place = element("section", { className: "panel" }, element("h2", { id: "nodes" }, "Nodes"),
        element("div", { className: "controls" }, element("label", {}, "Colour ", choice)), grid, readout, legend);
    place.setAttribute("aria-labelledby", "nodes");

    const quantity = () => NODE_QUANTITIES.find(({ id }) => id === choice.value);
    const withUnit = (value) => `${valueText(quantity().unit, value)}${quantity().unit === "cores" ? " cores" : ""}`;
    const textOf = (node) => {
        const value = values.get(node)?.[quantity().id];
        const jobs = values.get(node)?.jobs ?? 0;
        const shown = value === undefined ? "no samples" : withUnit(value);
        const requested = values.get(node)?.requested[quantity().id] ?? 0;
        const of = requested > 0 ? ` of ${withUnit(requested)} requested` : "";
        return choice.value === "jobs" ? `${node}: ${jobs} jobs` : `${node}: ${shown}${of}, ${jobs} ${jobs === 1 ? "job" : "jobs"}`;
    };
    const paint = () => {
        const { id } = quantity();
        const most = [...values.values()].reduce((max, value) => Math.max(max, value[id] ?? 0), 0);
        // A node is as bright as the share of its capacity that is used: of what its jobs requested.
        const isScaled = [...values.values()].some(({ requested }) => requested[id] > 0);
        for (const [node, cell] of cells) {
            const value = values.get(node)?.[id];
            const capacity = isScaled ? values.get(node)?.requested[id] || most : most;
            cell.firstChild.style.backgroundColor = value === undefined ? "" : viridis(capacity > 0 ? Math.min(value / capacity, 1) : 0);
            cell.setAttribute("aria-label", textOf(node));
        }
        low.textContent = isScaled ? "0 %" : valueText(quantity().unit, 0);
        high.textContent = isScaled ? "100 % of what the jobs there requested" : withUnit(most);
        grid.classList.toggle("named", cells.size <= NAMED_NODES);
        readout.textContent = `${cells.size} ${cells.size === 1 ? "node" : "nodes"} with a connected agent`;
    };
    const move = (cell, key) => {
        const all = [...grid.children];
        const columns = Math.max(1, all.filter((other) => other.offsetTop === all[0].offsetTop).length);
        const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -Infinity, End: Infinity }[key];
        const target = all[Math.min(Math.max(all.indexOf(cell) + by, 0), all.length - 1)];
        for (const other of all) other.tabIndex = other === target ? 0 : -1;
        target.focus();
    };
    grid.addEventListener("keydown", (event) => {
        if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
        event.preventDefault();
        move(event.target, event.key);
    });
    const tell = (event) => {
        const cell = event.target.closest("a");
        if (cell) readout.textContent = textOf(cell.dataset.node);
    };
    grid.addEventListener("focusin", tell);
    grid.addEventListener("mouseover", tell);
    choice.addEventListener("change", paint);

    place.show = (nodes, next) => {
        values = next;
        const names = new Set(nodes.map((node) => node.node));
        for (const [name, cell] of cells) {
            if (names.has(name)) continue;
            cell.remove();
            cells.delete(name);
        }
        for (const { node } of nodes) {
            if (cells.has(node)) continue;
            const href = `node?name=${encodeURIComponent(node)}`;
            const cell = element("a", { href, tabIndex: cells.size === 0 ? 0 : -1 }, element("span"), element("bdi", {}, node));
            cell.dataset.node = node;
            cells.set(node, cell);
            grid.append(cell);
        }
        place.hidden = nodes.length === 0;
        paint();
    };
    return place;
}
