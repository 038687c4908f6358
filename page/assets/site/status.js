// The health of the measurement: the collector, its agents, and the completeness of the samples of running jobs.

import { dateText, duration, element, plainNumber, threeDigits } from "../shared/text.js";
import { get, send } from "./api.js";
import { isReady, openPage, run } from "./frame.js";
import { elapsedS, idText } from "./job_text.js";
import { repeat } from "./repeat.js";
import { summaryOf } from "./summaries.js";

const REFRESH_S = 15;
const JOBS_MAX = 50;
const NODES_MAX = 1000;

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

const JOB_HEAD = ["Job", "Elapsed", "Due", "Late", "Missed", "Lost", "Clock out of range", "Unknown fate", "Cost, highest node"];

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
    section("agents", "Connected agents", agents));
    const { info } = await (await send("api/openapi.json")).json();

    await repeat(REFRESH_S, async () => {
        const [{ nodes }, answer] = await Promise.all([get("nodes"), get("jobs", { state: "running", limit: JOBS_MAX })]);
        const store = await send("ready").then(() => "can be read", (error) => error.message);
        const facts = [["Version", info.version], ["Store", store], ["Agents", String(nodes.length)],
            ["Tracked jobs", String(new Set(nodes.flatMap((node) => node.jobs)).size)]];
        collector.replaceChildren(...facts.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
        agents.replaceChildren(table("Connected agents", headOf(["Node", "Connected since", "Jobs"]), nodes.slice(0, NODES_MAX).map((node) => element("tr", {},
            element("th", { scope: "row" }, element("a", { href: `node?name=${encodeURIComponent(node.node)}` }, element("bdi", {}, node.node))),
            element("td", {}, dateText(node.started_us / 1e6)), element("td", { className: "number" }, String(node.jobs.length))))));
        const rows = await Promise.all(answer.jobs.map(async (job) => jobRow(job, await summaryOf(job))));
        jobs.replaceChildren(table("Samples of running jobs", headOf(JOB_HEAD), rows));
    });
    isReady();
});
