// The health of the measurement: the collector, its agents, and the completeness of the samples of running jobs.

import { dateText, duration, element, plainNumber, threeDigits } from "../shared/text.js";
import { get, send } from "./api.js";
import { isReady, openPage, run } from "./frame.js";
import { elapsedS, idText } from "./job_text.js";
import { repeat } from "./repeat.js";
import { summaryOf } from "./summaries.js";

const REFRESH_S = 15;
const JOBS_MAX = 50;
const AGENTS_MAX = 1000;

/** A delay that buffers do not explain: a clock is behind, or the connection is interrupted. */
const DELAY_MAX_S = 60;

/** The share of samples above which a count is marked: a remark, and a fault. */
const SHARES = [0.001, 0.01];

function headOf(names) {
    return element("thead", {}, element("tr", {}, ...names.map((name, column) =>
        element("th", { scope: "col", className: column > 1 ? "number" : "" }, name))));
}

/** Returns a cell with a count, and its share of all samples. */
function countCell(count, due) {
    const share = due > 0 ? count / due : 0;
    const level = share >= SHARES[1] ? "critical" : share >= SHARES[0] ? "warning" : "";
    const text = count === 0 ? "0" : `${plainNumber(count)} (${threeDigits(share * 100)} %)`;
    return element("td", { className: `number level-cell ${level}` }, text);
}

function jobRow(job, summary) {
    const { ledger } = summary;
    const lost = ledger.dropped + summary.skipped + summary.rejected;
    const cost = summary.measuring ? `${threeDigits(summary.measuring.highest_core_percent)} %` : "–";
    return element("tr", {}, element("th", { scope: "row" }, element("a", { href: `job?key=${job.key}` }, element("bdi", {}, idText(job)))),
        element("td", {}, duration(Math.round(elapsedS(job)))), element("td", { className: "number" }, plainNumber(ledger.due)),
        ...[ledger.late, ledger.missed, lost, summary.quarantined, summary.unknown].map((count) => countCell(count, ledger.due)),
        element("td", { className: "number" }, cost));
}

/** Returns the row of a job whose summary cannot be computed. */
function failedRow(job, error) {
    return element("tr", {}, element("th", { scope: "row" }, element("a", { href: `job?key=${job.key}` }, element("bdi", {}, idText(job)))),
        element("td", { colSpan: JOB_HEAD.length - 1 }, error.message));
}

const JOB_HEAD = ["Job", "Elapsed", "Due", "Late", "Missed", "Lost", "Clock out of range", "Unknown fate", "Cost, highest node"];

/** Returns what is known about the connection of an agent. */
function connectionText(agent) {
    if (agent.ended_us !== null) return `ended: ${agent.end_reason ?? "reason unknown"}`;
    return agent.is_connected ? "connected" : `not connected since ${dateText(agent.last_seen_us / 1e6)}`;
}

/** Returns a cell with the delay of the newest sample. A clock that is ahead makes it negative. */
function delayCell(agent) {
    const delay_s = agent.delay_us === null ? null : agent.delay_us / 1e6;
    const isWrong = delay_s !== null && (delay_s < 0 || delay_s > DELAY_MAX_S);
    return element("td", { className: `number level-cell ${isWrong ? "warning" : ""}` }, delay_s === null ? "–" : duration(delay_s));
}

const AGENT_HEAD = ["Node", "Agent", "Version", "Session since", "Delay and clock", "Due", "Late", "Missed", "Lost"];

function agentRow(agent) {
    return element("tr", {}, element("th", { scope: "row" }, element("a", { href: `node?name=${encodeURIComponent(agent.node)}` }, element("bdi", {}, agent.node))),
        element("td", {}, connectionText(agent)), element("td", { className: "number" }, element("bdi", {}, agent.version)),
        element("td", { className: "number" }, dateText(agent.started_us / 1e6)), delayCell(agent), element("td", { className: "number" }, plainNumber(agent.due)),
        ...[agent.late, agent.missed, agent.lost].map((count) => countCell(count, agent.due)));
}

function table(caption, head, rows) {
    if (rows.length === 0) return element("p", { className: "soft" }, "None.");
    return element("div", { className: "scroll" }, element("table", {}, element("caption", { className: "unseen" }, caption), head, element("tbody", {}, ...rows)));
}

function section(id, title, ...children) {
    const made = element("section", {}, element("h2", { id }, title), ...children);
    made.setAttribute("aria-labelledby", id);
    return made;
}

run(async () => {
    const { main } = await openPage();
    const collector = element("dl");
    const jobs = element("div");
    const agents = element("div");
    main.append(element("h1", {}, "Measurement"), section("collector", "Collector", collector), section("jobs", "Samples of running jobs", jobs,
        element("p", { className: "remark" }, "Late samples were read after their deadline, missed ones never. Samples whose times the collector does not trust are in quarantine.")),
    section("agents", "Agents of the last day", agents, element("p", { className: "remark" },
        "Administrators see them. The delay is the time from the newest sample to its arrival; it is negative if the clock of the node is ahead. ",
        "Late and missed samples are those of the node's own sources in the session.")));
    const { info } = await (await send("api/openapi.json")).json();

    await repeat(REFRESH_S, async () => {
        const [{ nodes }, { agents: list }, answer] = await Promise.all([
            get("nodes"), get("agents"), get("jobs", { state: "running", limit: JOBS_MAX }),
        ]);
        const store = await send("ready").then(() => "can be read", (error) => error.message);
        const facts = [["Version", info.version], ["Store", store], ["Agents", String(nodes.length)],
            ["Tracked jobs", String(new Set(nodes.flatMap((node) => node.jobs)).size)]];
        collector.replaceChildren(...facts.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
        agents.replaceChildren(table("Agents", headOf(AGENT_HEAD), list.slice(0, AGENTS_MAX).map(agentRow)));
        const rows = await Promise.all(answer.jobs.map((job) => summaryOf(job).then((summary) => jobRow(job, summary), (error) => failedRow(job, error))));
        jobs.replaceChildren(table("Samples of running jobs", headOf(JOB_HEAD), rows));
    });
    isReady();
});
