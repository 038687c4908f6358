// The table of agents: those with problems first, filtered, and bounded however many there are.

import { dateText, duration, element } from "../shared/text.js";
import { LEVELS, offsetText, countText, delayS, levelOfCount, problemsOf } from "./agent_health.js";

const PAGE = 100;

const HEAD = [["Node", ""], ["State", "state-cell"], ["Version", ""], ["Clock, less the collector's", "number"], ["Delay", "number"], ["Late", "number"],
    ["Missed", "number"], ["Lost", "number"], ["Session since", "number"]];

const KINDS = { silent: "silent", stopped: "stopped", clock: "with a wrong clock", delay: "with late data", lost: "with losses", missed: "with missed samples",
    late: "with late samples", version: "of another version" };

function countCell(count, due) {
    return element("td", { className: `number level-cell ${levelOfCount(count, due)}` }, countText(count, due));
}

function rowOf({ agent, problems, level }, now_us) {
    const delay_s = delayS(agent);
    const hasKind = (kind) => problems.find((problem) => problem.kind === kind)?.level ?? "";
    const state = level === "good" ? [element("span", { className: "badge good" }, agent.is_connected ? "connected" : "elsewhere")]
        : [element("span", { className: `badge ${level}` }, level), " ", problems.map((problem) => problem.text).join("; ")];
    return element("tr", {},
        element("th", { scope: "row" }, element("a", { href: `node?name=${encodeURIComponent(agent.node)}` }, element("bdi", {}, agent.node))),
        element("td", { className: "state-cell" }, ...state), element("td", {}, element("bdi", {}, agent.version)),
        element("td", { className: `number level-cell ${hasKind("clock")}` }, offsetText(agent, now_us)),
        element("td", { className: `number level-cell ${hasKind("delay")}` }, delay_s === null ? "–" : duration(delay_s)),
        ...[agent.late, agent.missed, agent.lost].map((count) => countCell(count, agent.due)),
        element("td", { className: "number" }, dateText(agent.started_us / 1e6)));
}

/** Returns how many agents have each kind of problem, in words. */
function summaryText(all) {
    const agents = `${all.length} ${all.length === 1 ? "agent" : "agents"}`;
    const counts = Object.entries(KINDS).map(([kind, text]) => [text, all.filter(({ problems }) => problems.some((one) => one.kind === kind)).length]);
    const told = counts.filter(([, count]) => count > 0).map(([text, count]) => `${count} ${text}`);
    const good = all.filter(({ level }) => level === "good").length;
    return told.length > 0 ? `${agents}: ${told.join(", ")}; ${good} without problems.` : `${agents}, all without problems.`;
}

/** Creates the table with its filters. */
export function agentTable() {
    const search = element("input", { type: "search", autocomplete: "off", maxLength: 256 });
    const which = element("select", {}, element("option", { value: "" }, "all"), element("option", { value: "problems" }, "with problems"),
        ...Object.entries(KINDS).map(([kind, text]) => element("option", { value: kind }, text)));
    const version = element("select");
    const summary = element("p", { className: "summary" });
    const shown = element("output");
    const more = element("button", { type: "button" }, `Show ${PAGE} more`);
    const body = element("tbody");
    const head = element("tr", {}, ...HEAD.map(([name, className]) => element("th", { scope: "col", className }, name)));
    const table = element("table", { className: "agents" }, element("caption", { className: "unseen" }, "Agents, those with problems first"),
        element("thead", {}, head), body);
    const place = element("div", {}, summary,
        element("div", { className: "filters" }, element("label", {}, element("span", {}, "Node"), search), element("label", {}, element("span", {}, "Agents"), which),
            element("label", {}, element("span", {}, "Version"), version)),
        element("div", { className: "scroll" }, table), element("div", { className: "controls" }, shown, more));
    let all = [];
    let now_us = 0;
    let limit = PAGE;

    const isWanted = ({ agent, problems, level }) => agent.node.includes(search.value.trim()) && (version.value === "" || agent.version === version.value) &&
        (which.value === "" || (which.value === "problems" ? level !== "good" : problems.some((one) => one.kind === which.value)));
    const draw = () => {
        const found = all.filter(isWanted);
        // Rows are made anew: the focus returns to the link of the same node.
        const focused = body.contains(document.activeElement) ? document.activeElement.href : null;
        body.replaceChildren(...found.slice(0, limit).map((entry) => rowOf(entry, now_us)));
        if (focused) [...body.querySelectorAll("a")].find((link) => link.href === focused)?.focus();
        shown.textContent = found.length > limit ? `${limit} of ${found.length}` : `${found.length} of ${all.length}`;
        more.hidden = found.length <= limit;
        table.hidden = found.length === 0;
    };
    const restart = () => { limit = PAGE; draw(); };
    search.addEventListener("input", restart);
    which.addEventListener("change", restart);
    version.addEventListener("change", restart);
    more.addEventListener("click", () => { limit += PAGE; draw(); });

    /** Shows agents at a time of the collector. `own` is the collector's version. */
    place.show = (agents, time_us, own) => {
        now_us = time_us;
        all = agents.map((agent) => {
            const problems = problemsOf(agent, now_us, own);
            return { agent, problems, level: problems[0]?.level ?? "good" };
        });
        all.sort((one, other) => LEVELS.indexOf(one.level) - LEVELS.indexOf(other.level) || one.agent.node.localeCompare(other.agent.node));
        const versions = [...new Set(agents.map((agent) => agent.version))].sort();
        const before = version.value;
        version.replaceChildren(element("option", { value: "" }, "all"), ...versions.map((value) =>
            element("option", { value }, `${value} (${agents.filter((agent) => agent.version === value).length})`)));
        if (versions.includes(before)) version.value = before;
        summary.textContent = summaryText(all);
        draw();
    };
    return place;
}
