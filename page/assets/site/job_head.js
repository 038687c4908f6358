// The headline of a job: what came of it in one sentence, and the facts about it in one line.

import { bytes, dateText, duration, element, zoneText } from "../shared/text.js";
import { elapsedS, elapsedText, idText, ownerText, stateLevel, stateText } from "./job_text.js";
import { bar } from "./meters.js";

const NODES_MAX = 8;
const KEPT_MAX = 3;

/** The age of the newest value, in seconds, above which a page is no longer called live. */
const LIVE_S = 30;

function resourcesText(job) {
    const count = (number, name) => (number === null ? [] : [`${number} ${name}${number === 1 ? "" : "s"}`]);
    const memory = job.memory_bytes === null ? [] : [`${bytes(job.memory_bytes)}${job.nodes.length > 1 ? " a node" : ""}`];
    return [...count(job.cores, "core"), ...count(job.gpus || null, "GPU"), ...memory].join(", ");
}

function nodeLinks(job) {
    const links = job.nodes.slice(0, NODES_MAX).flatMap((node) => [
        " ", element("a", { href: `node?name=${encodeURIComponent(node)}` }, element("bdi", {}, node)),
    ]);
    const more = job.nodes.length - NODES_MAX;
    return more > 0 ? [...links, ` and ${more} more`] : links;
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

/** Returns the time of a job: the end without the date if that is the day of the start. */
function timeText({ started_us, ended_us }) {
    const [start, end] = [started_us, ended_us].map((us) => (us === null ? "" : dateText(us / 1e6)));
    const zone = zoneText(started_us / 1e6);
    if (!end) return `since ${start} ${zone}`;
    return `${start} to ${end.slice(0, 10) === start.slice(0, 10) ? end.slice(11) : end} ${zone}`;
}

/** Returns the elapsed time, and its share of the time limit as a bar. */
function elapsedParts(job) {
    const text = element("bdi", {}, elapsedText(job));
    return job.time_limit_s ? [text, bar(elapsedS(job) / job.time_limit_s, "plain")] : [text];
}

/** Returns the sentence about a job: that of the server, or one from its summary. */
function verdictText(job, summary) {
    const verdict = job.verdict ?? summary?.verdict;
    if (verdict?.text) return verdict.text;
    const used = summary?.meters?.find(({ label, share }) => label === "CPU" && Number.isFinite(share))?.text.replace(" in use on average", "");
    const things = summary ? summary.findings.length : null;
    const change = things === null ? [] : [things === 0 ? "nothing to change" : `${things} ${things === 1 ? "thing" : "things"} to change`];
    return [stateText(job), ...(used ? [`used ${used}`] : []), ...change].join(" - ");
}

/** Creates the header of a job's page. */
export function jobHead(job) {
    const verdict = element("p", { className: "verdict" });
    const live = element("span", { className: "live", hidden: true });
    const facts = element("dl", { className: "facts" });
    const title = element("h1", {}, "Job ", element("bdi", {}, idText(job)));
    if (job.name) title.append(" ", element("span", { className: "job-name" }, element("bdi", {}, job.name)));
    const kept = element("ul", { className: "kept", hidden: true });
    kept.setAttribute("aria-label", "Kept intervals");
    const place = element("div", { className: "job-head" }, element("div", { className: "title" }, title, live), verdict, kept, facts);
    let latest = job;
    let summary = null;
    place.show = (next) => {
        latest = next;
        const state = stateText(next);
        const text = verdictText(next, summary);
        if (verdict.textContent !== text) verdict.textContent = text;
        const worst = summary?.findings[0]?.severity ?? "";
        verdict.dataset.state = state;
        const level = next.ended_us === null ? "running" : stateLevel(next) || (state.startsWith("COMPLETED") ? "good" : "");
        verdict.className = `verdict ${["critical", "warning"].includes(worst) ? worst : level}`;
        const rows = [
            ["User", [element("bdi", {}, ownerText(next))]], ["Account", next.account], ["Queue", next.queue], ["Cluster", next.cluster],
            ["Requested", resourcesText(next) || null], [next.nodes.length === 1 ? "Node" : "Nodes", nodeLinks(next)], ["Time", timeText(next)],
            ["Elapsed", elapsedParts(next)], ["Agent lost on", next.lost_nodes.join(" ") || null], ["Restarts", next.restarts || null], ["Devices", summary?.measured_by_devices ?? null],
        ];
        showFacts(facts, rows.filter(([, value]) => value !== null && value !== undefined));
        document.title = `Job ${idText(next)}${next.name ? `: ${next.name}` : ""} · Polymeter`;
    };
    /** Shows the sentence that follows from the summary. */
    place.summarize = (next) => {
        summary = next;
        place.show(latest);
    };
    /** Lists the kept intervals, that which explains the end best first, then the latest; `link` makes the link of a text that shows a range of the charts. */
    place.listKept = (intervals, link) => {
        const shown = intervals.slice(-KEPT_MAX).toReversed();
        const rows = shown.map(({ text, reason, begin_s, end_s }) =>
            element("li", {}, "kept: ", link(text, begin_s, end_s), ": ", element("bdi", {}, reason)));
        const more = intervals.length - shown.length;
        kept.replaceChildren(...rows, ...(more > 0 ? [element("li", {}, `and ${more} more`)] : []));
        kept.hidden = intervals.length === 0;
    };
    /** Shows the age of the newest value, in seconds; null if no values arrive. */
    place.age = (seconds) => {
        const isLive = seconds !== null && seconds < LIVE_S;
        live.hidden = false;
        live.classList.toggle("on", isLive);
        const age = seconds === null ? "" : `, ${duration(Math.max(Math.round(seconds), 0))} old`;
        live.textContent = isLive ? `live${age}` : `not live${age}`;
    };
    place.show(job);
    return place;
}
