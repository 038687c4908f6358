// The table beside a flame graph: the time of each function, wherever it was called.
import { duration, element, threeDigits } from "../shared/text.js";

/** The maximum number of rows. */
const ROWS = 200;

/** Adds up the times of functions. A function counts once, however often it is among its callers. */
export function functionTimes(root) {
    const times = new Map();
    const open = [[root, new Set()]];
    while (open.length > 0) {
        const [node, callers] = open.pop();
        let within = callers;
        if (node.parent) {
            const time = times.get(node.number) ?? { name: node.name, module: node.module, own: 0, total: 0, before: 0, after: 0 };
            times.set(node.number, time);
            time.own += node.own;
            if (!callers.has(node.number)) {
                time.total += node.total;
                time.before += node.before;
                time.after += node.after;
                within = new Set(callers).add(node.number);
            }
        }
        for (const callee of node.callees) open.push([callee, within]);
    }
    return [...times.values()];
}

function share(part, whole) {
    return whole > 0 ? part / whole : 0;
}

/** Returns the table of the functions of a graph; a click on a name calls `chosen` with it. */
export function functionTable(root, chosen) {
    const times = functionTimes(root);
    const isCompared = root.before > 0 || root.after > 0;
    const change = (time) => share(time.after, root.after) - share(time.before, root.before);
    const percent = (part) => `${threeDigits(100 * part)} %`;
    const columns = [
        ["Itself", (time) => time.own, (time) => percent(share(time.own, root.total))],
        ["In all", (time) => time.total, (time) => percent(share(time.total, root.total))],
        ["Time", (time) => time.own, (time) => duration(time.own / 1e6)],
    ];
    if (isCompared) {
        columns.splice(0, columns.length,
            ["Before", (time) => time.before, (time) => percent(share(time.before, root.before))],
            ["After", (time) => time.after, (time) => percent(share(time.after, root.after))],
            ["Change", (time) => Math.abs(change(time)), (time) => `${change(time) > 0 ? "+" : ""}${threeDigits(100 * change(time))} %`]);
    }
    const body = element("tbody");
    const heads = columns.map(([name, key]) => {
        const head = element("th", { scope: "col", className: "number" }, element("button", { type: "button" }, name));
        head.addEventListener("click", () => fill(key, head));
        return head;
    });
    function fill(key, head) {
        heads.forEach((one) => one.setAttribute("aria-sort", one === head ? "descending" : "none"));
        const rows = [...times].sort((one, other) => key(other) - key(one)).slice(0, ROWS);
        body.replaceChildren(...rows.map((time) => {
            const button = element("button", { type: "button", className: "function" }, element("bdi", {}, time.name));
            button.addEventListener("click", () => chosen(time.name));
            return element("tr", {}, ...columns.map(([, , text]) => element("td", { className: "number" }, text(time))),
                element("th", { scope: "row", title: time.module }, button));
        }));
    }
    const first = isCompared ? 2 : 0;
    fill(columns[first][1], heads[first]);
    const caption = times.length > ROWS ? `Functions: ${ROWS} of ${times.length}` : "Functions";
    return element("table", {}, element("caption", {}, caption),
        element("thead", {}, element("tr", {}, ...heads, element("th", { scope: "col" }, "Function"))), body);
}
