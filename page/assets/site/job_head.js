// The headline of a job, and the facts about it.

import { bytes, dateText, element, zoneText } from "../shared/text.js";
import { elapsedText, idText, ownerText, stateLevel, stateText } from "./job_text.js";

const NODES_MAX = 8;

function resourcesText(job) {
    const count = (number, name) => (number === null ? [] : [`${number} ${name}${number === 1 ? "" : "s"}`]);
    const memory = job.memory_bytes === null ? [] : [`${bytes(job.memory_bytes)} a node`];
    return [...count(job.nodes.length, "node"), ...count(job.cores, "core"), ...count(job.gpus || null, "GPU"), ...memory].join(", ");
}

function nodeLinks(job) {
    const links = job.nodes.slice(0, NODES_MAX).flatMap((node) => [
        element("a", { href: `node?name=${encodeURIComponent(node)}` }, element("bdi", {}, node)), " ",
    ]);
    const more = job.nodes.length - NODES_MAX;
    return more > 0 ? [...links, `and ${more} more`] : links;
}

/** Shows names and values. What has not changed stays in the page, with its focus. */
function showFacts(facts, rows) {
    const made = rows.map(([name, value]) =>
        element("div", {}, element("dt", {}, name), element("dd", {}, ...(Array.isArray(value) ? value : [element("bdi", {}, String(value))]))));
    const names = (lines) => lines.map((line) => line.firstChild.textContent).join("\n");
    const shown = [...facts.children];
    if (names(shown) !== names(made)) return facts.replaceChildren(...made);
    return shown.forEach((line, row) => {
        if (line.textContent !== made[row].textContent) line.lastChild.replaceWith(made[row].lastChild);
    });
}

/** Creates the header of a job's page. */
export function jobHead(job) {
    const state = element("span", { className: "job-state" });
    const facts = element("dl");
    const title = element("h1", {}, "Job ", element("bdi", {}, idText(job)));
    if (job.name) title.append(" ", element("span", { className: "job-name" }, element("bdi", {}, job.name)));
    const place = element("div", { className: "job-head" }, element("div", { className: "title" }, title, state), facts);
    place.show = (next) => {
        const now = stateText(next);
        state.textContent = now;
        state.className = `job-state ${next.ended_us === null ? "running" : now.startsWith("COMPLETED") ? "good" : `ended ${stateLevel(next)}`}`;
        const time = (us) => `${dateText(us / 1e6)} ${zoneText(us / 1e6)}`;
        const rows = [
            ["User", [element("bdi", {}, ownerText(next))]], ["Account", next.account], ["Queue", next.queue], ["Cluster", next.cluster],
            ["Resources", resourcesText(next)], ["Nodes", nodeLinks(next)], ["Start", time(next.started_us)],
            ["End", next.ended_us === null ? null : time(next.ended_us)], ["Elapsed", elapsedText(next)],
            ["Agent lost on", next.lost_nodes.join(" ") || null], ["Restarts", next.restarts || null],
        ];
        showFacts(facts, rows.filter(([, value]) => value !== null && value !== undefined));
        document.title = `Job ${idText(next)}${next.name ? `: ${next.name}` : ""} · Polymeter`;
    };
    place.show(job);
    return place;
}
