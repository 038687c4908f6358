// A flame graph: functions as boxes, below those that called them, as wide as their time.
import { duration, element, threeDigits } from "../shared/text.js";
import { colours } from "../shared/theme.js";

/** The height of a function, in pixels. */
const ROW = 19;

/** Functions that are narrower are not drawn, in pixels. */
const WIDTH_MIN = 0.4;

/** The maximum height of the drawing, in pixels: that of the canvases of all browsers. */
const HEIGHT_MAX = 16384;

/** Light colours, one for each module in turn. */
const MODULE_COLOURS = ["#f5c37b", "#8fcbe8", "#8ed6b7", "#e5b3cc", "#f0a98a", "#e9de8b", "#9ebfe6", "#c9c3ef"];

const WITHOUT_SYMBOL = "#c6ccd2";
const FOUND = "#c56cf0";
const INK = "#1c2733";

/** Makes nodes from the data of the page: their functions, callers, places and times. */
export function flameNodes(data) {
    const root = { name: "all", module: "", own: 0, total: data.total_us, before: 0, after: 0, callees: [], depth: 0, begin: 0, parent: null };
    [root.before, root.after] = data.compared_us ?? [0, 0];
    const nodes = data.nodes.map(([parent, number, own, total, before = 0, after = 0]) => {
        const [name, module] = data.functions[number];
        return { parent, number, name, module, own, total, before, after, callees: [] };
    });
    for (const node of nodes) {
        node.parent = node.parent < 0 ? root : nodes[node.parent];
        node.parent.callees.push(node);
        node.depth = node.parent.depth + 1;
    }
    // Callees follow in the list.
    for (const node of [root, ...nodes]) {
        let begin = node.begin;
        for (const callee of node.callees.sort((one, other) => other.total - one.total)) {
            callee.begin = begin;
            begin += callee.total;
        }
    }
    return { root, nodes: [root, ...nodes] };
}

function percent(part, whole) {
    return `${threeDigits(whole > 0 ? (100 * part) / whole : 0)} %`;
}

/** Describes a node. */
export function nodeText(node, root) {
    const place = node.module ? `${node.name} (${node.module})` : node.name;
    const times = `${duration(node.total / 1e6)}, ${percent(node.total, root.total)}; itself ${duration(node.own / 1e6)}, ${percent(node.own, root.total)}`;
    if (!root.before && !root.after) return `${place}: ${times}`;
    return `${place}: ${percent(node.before, root.before)} before, ${percent(node.after, root.after)} after`;
}

/** Returns the colour of a change of a share: blue for less, orange for more. */
function changeColour(node, root) {
    const share = (part, whole) => (whole > 0 ? part / whole : 0);
    const change = share(node.after, root.after) - share(node.before, root.before);
    const strength = Math.min(Math.sqrt(Math.abs(change)) * 1.6, 1);
    const [red, green, blue] = change > 0 ? [240, 138, 60] : [86, 160, 224];
    const mixed = (value) => Math.round(238 + (value - 238) * strength);
    return `rgb(${mixed(red)},${mixed(green)},${mixed(blue)})`;
}

/** Returns the graph of nodes, which calls `told` with the text of the node under the pointer or the keys. */
export function flameGraph({ root, nodes }, told) {
    const modules = [...new Set(nodes.map((node) => node.module))];
    const modulePlace = new Map(modules.map((module, place) => [module, place]));
    const canvas = element("canvas", { className: "flame", tabIndex: 0, role: "img", "aria-label": "Flame graph. Arrow keys choose a function, Enter enlarges it, Escape shows all.", "aria-describedby": "flame-readout" });
    let focus = root;
    let chosen = root;
    let isFound = () => false;
    let drawn = [];

    const isBelow = (node, top) => node.begin >= top.begin && node.begin + node.total <= top.begin + top.total && node.depth >= top.depth;
    let callers = new Set();

    function fill(node) {
        if (isFound(node)) return FOUND;
        if (root.before || root.after) return changeColour(node, root);
        if (node.name.startsWith("[")) return WITHOUT_SYMBOL;
        return MODULE_COLOURS[modulePlace.get(node.module) % MODULE_COLOURS.length];
    }

    function draw() {
        const width = Math.max(canvas.parentElement?.clientWidth ?? 0, 200);
        const scale = focus.total > 0 ? width / focus.total : 0;
        drawn = [];
        callers = new Set();
        for (let one = focus; one; one = one.parent) callers.add(one);
        let rows = 1;
        for (const node of nodes) {
            const above = callers.has(node);
            if (!above && !isBelow(node, focus)) continue;
            const x = above ? 0 : (node.begin - focus.begin) * scale;
            const size = above ? width : node.total * scale;
            if (size < WIDTH_MIN) continue;
            drawn.push({ node, x, y: node.depth * ROW, size });
            rows = Math.max(rows, node.depth + 1);
        }
        const height = Math.min(rows * ROW, HEIGHT_MAX);
        const pixels = window.devicePixelRatio || 1;
        canvas.width = Math.round(width * pixels);
        canvas.height = Math.round(height * pixels);
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
        const context = canvas.getContext("2d");
        context.scale(pixels, pixels);
        context.font = "12px system-ui, sans-serif";
        context.textBaseline = "middle";
        const letter = context.measureText("e").width;
        for (const { node, x, y, size } of drawn) {
            context.globalAlpha = node !== focus && callers.has(node) ? 0.5 : 1;
            context.fillStyle = fill(node);
            context.fillRect(x, y, Math.max(size - 0.5, WIDTH_MIN), ROW - 1);
            const letters = Math.floor((size - 6) / letter);
            if (letters >= 3) {
                context.fillStyle = INK;
                const text = node.name.length > letters ? `${node.name.slice(0, letters - 1)}…` : node.name;
                context.fillText(text, x + 3, y + ROW / 2, size - 4);
            }
        }
        context.globalAlpha = 1;
        const own = drawn.find(({ node }) => node === chosen);
        if (own && document.activeElement === canvas) {
            context.strokeStyle = colours().ink;
            context.lineWidth = 2;
            context.strokeRect(own.x + 1, own.y + 1, Math.max(own.size - 2, 1), ROW - 3);
        }
    }

    function nodeAt(event) {
        const box = canvas.getBoundingClientRect();
        const [x, y] = [event.clientX - box.left, event.clientY - box.top];
        return drawn.find((one) => y >= one.y && y < one.y + ROW && x >= one.x && x < one.x + one.size)?.node;
    }

    function enlarge(node) {
        focus = node;
        choose(node);
    }

    function choose(node) {
        chosen = node;
        told(nodeText(node, root));
        draw();
    }

    const siblings = (node) => (node.parent ? node.parent.callees : [node]);
    const keys = {
        ArrowDown: () => chosen.callees[0],
        ArrowUp: () => chosen.parent,
        ArrowRight: () => siblings(chosen)[siblings(chosen).indexOf(chosen) + 1],
        ArrowLeft: () => siblings(chosen)[siblings(chosen).indexOf(chosen) - 1],
        Home: () => root,
    };
    canvas.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.altKey || event.metaKey) return;
        if (event.key === "Enter" || event.key === " ") enlarge(chosen);
        else if (event.key === "Escape" || event.key === "0") enlarge(root);
        else if (event.key in keys) {
            const next = keys[event.key]();
            if (next) choose(next);
        } else return;
        event.preventDefault();
    });
    canvas.addEventListener("pointermove", (event) => {
        const node = nodeAt(event);
        if (node) told(nodeText(node, root));
    });
    canvas.addEventListener("click", (event) => {
        const node = nodeAt(event);
        if (node) enlarge(node);
    });
    canvas.addEventListener("focus", draw);
    canvas.addEventListener("blur", draw);

    return {
        canvas,
        draw,
        reset: () => enlarge(root),
        /** Colours the functions for which `test` is true. Returns their share of the time. */
        search(test) {
            isFound = test ?? (() => false);
            let found = 0;
            const visit = (node) => {
                if (isFound(node)) found += node.total;
                else open.push(...node.callees);
            };
            const open = [root];
            while (open.length > 0) visit(open.pop());
            draw();
            return percent(found, root.total);
        },
    };
}
