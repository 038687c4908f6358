// The health of the measurement: the collector, its agents, and the completeness of the samples of running jobs.

import { dateText, duration, element, plainNumber, threeDigits } from "../shared/text.js";
import { countText, levelOfCount } from "./agent_health.js";
import { agentTable } from "./agent_table.js";
import { get, send } from "./api.js";
import { foldedRows } from "./folded_rows.js";
import { isReady, openPage, run } from "./frame.js";
import { elapsedS, idText } from "./job_text.js";
import { repeat } from "./repeat.js";
import { sparkline } from "./sparkline.js";

const REFRESH_S = 15;
const JOBS_MAX = 50;
const TREND_HEIGHT = 60;

function headOf(names) {
    return element("thead", {}, element("tr", {}, ...names.map((name, column) =>
        element("th", { scope: "col", className: column > 1 ? "number" : "" }, name))));
}

function countCell(count, due) {
    return element("td", { className: `number level-cell ${levelOfCount(count, due)}` }, countText(count, due));
}

function jobRow(job, summary) {
    const { ledger } = summary;
    const lost = ledger.dropped + summary.skipped + summary.rejected;
    const cost = Number.isFinite(summary.measuring?.highest_core_percent)
        ? `${threeDigits(summary.measuring.highest_core_percent)} %` : "–";
    return element("tr", {}, element("th", { scope: "row" }, element("a", { href: `job?key=${job.key}` }, element("bdi", {}, idText(job)))),
        element("td", { className: "elapsed" }, duration(Math.round(elapsedS(job)))), element("td", { className: "number" }, plainNumber(ledger.due)),
        ...[ledger.late, ledger.missed, lost, summary.quarantined, summary.unknown].map((count) => countCell(count, ledger.due)),
        element("td", { className: "number" }, cost));
}

/** Returns the row of a job whose summary cannot be computed. */
function failedRow(job, error) {
    return element("tr", {}, element("th", { scope: "row" }, element("a", { href: `job?key=${job.key}` }, element("bdi", {}, idText(job)))),
        element("td", { colSpan: JOB_HEAD.length - 1 }, error.message));
}

const JOB_HEAD = ["Job", "Elapsed", "Due", "Late", "Missed", "Lost", "Clock out of range", "Unknown fate", "Cost, highest node"];

function table(caption, head, rows) {
    if (rows.length === 0) return element("p", { className: "soft" }, "None.");
    return element("div", { className: "scroll" }, element("table", {}, element("caption", { className: "unseen" }, caption), head, element("tbody", {}, ...rows)));
}

function section(id, title, ...contents) {
    const place = element("section", {}, element("h2", { id }, title), ...contents);
    place.setAttribute("aria-labelledby", id);
    return place;
}

/** Returns all agents, and the time of the answer. */
async function allAgents() {
    const agents = [];
    let cursor = null;
    for (;;) {
        const page = await get("agents", { cursor });
        agents.push(...page.agents);
        cursor = page.next;
        if (cursor === null) return { agents, now_us: page.now_us };
    }
}

/** Returns the trend of the losses: a picture, and the same in words. */
function lossTrend({ from_us, part_s, lost, is_complete }) {
    const sum = lost.reduce((all, one) => all + one, 0);
    const most = Math.max(...lost);
    const worst = dateText(from_us / 1e6 + lost.indexOf(most) * part_s).slice(0, 16);
    const text = sum === 0 ? "No samples were lost in the last week."
        : `${plainNumber(sum)} samples were lost in the last week, most of them in the ${duration(part_s)} from ${worst}: ${plainNumber(most)}.`;
    const more = is_complete ? "" : " There were more losses than are counted here.";
    return [...(sum === 0 ? [] : [sparkline(lost, most, TREND_HEIGHT)]), element("p", {}, text, more)];
}

run(async () => {
    const { main, user } = await openPage();
    const collector = element("dl");
    const jobs = element("div");
    const allJobs = foldedRows();
    const agents = agentTable();
    const ofAgents = section("agents", "Agents of the last day", agents, element("p", { className: "remark" },
        "The clock of a node is compared with that of the collector once a minute, by a request and its answer; + is ahead. The delay is the time from the newest " +
        "sample to its arrival. Late and missed samples are those of the node's own sources in the session, lost ones those of the last day."));
    const ofJobs = section("jobs", "Samples of running jobs", jobs, allJobs,
        element("p", { className: "remark" }, "Late samples were read after their deadline, missed ones never. Samples whose times the collector does not trust are in quarantine."));
    const trend = element("div", { className: "trend" });
    const ofLosses = section("losses", "Lost samples of the last week", trend);
    ofLosses.hidden = !user.sees_all;
    ofAgents.hidden = !user.sees_all;
    main.append(element("h1", {}, "Measurement"), section("collector", "Collector", collector), ofLosses, ofAgents, ofJobs);
    const { info } = await (await send("api/openapi.json")).json();

    await repeat(REFRESH_S, async () => {
        const [{ nodes }, health, answer, losses] = await Promise.all([
            get("nodes"), user.sees_all ? allAgents() : null, get("jobs", { state: "running", limit: JOBS_MAX }),
            user.sees_all ? get("loss-trend") : null,
        ]);
        if (losses) trend.replaceChildren(...lossTrend(losses));
        const store = await send("ready").then(() => "can be read", (error) => error.message);
        const facts = [["Version", info.version], ["Store", store], ["Connected agents", String(nodes.length)],
            ["Tracked jobs", String(new Set(nodes.flatMap((node) => node.jobs)).size)]];
        collector.replaceChildren(...facts.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
        if (health) agents.show(health.agents, health.now_us, info.version);
        const rows = await Promise.all(answer.jobs.map((job) => get(`jobs/${job.key}/summary`).then((summary) => jobRow(job, summary), (error) => failedRow(job, error))));
        jobs.replaceChildren(table("Samples of running jobs", headOf(JOB_HEAD), rows));
        allJobs.fold(rows);
    });
    isReady();
});
