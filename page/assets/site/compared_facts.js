// What was requested for jobs, and how they were sampled, side by side.

import { bytes, duration, element } from "../shared/text.js";
import { get } from "./api.js";
import { elapsedS, idText, ownerText, startText, stateText } from "./job_text.js";

const NODES_MAX = 8;

/** The rows of metrics up to which they are shown at once. */
const OPEN_ROWS_MAX = 6;

const known = (value) => value !== null && value !== undefined && value !== "";

function nodeText(job) {
    const more = job.nodes.length - NODES_MAX;
    return `${job.nodes.slice(0, NODES_MAX).join(" ")}${more > 0 ? ` and ${more} more` : ""}`;
}

/** Names of facts, and their texts. */
const FACTS = [
    ["Name", (job) => job.name],
    ["Command", (job) => job.run?.command?.join(" ")],
    ["State", stateText],
    ["User", ownerText],
    ["Account", (job) => job.account],
    ["Queue", (job) => job.queue],
    ["Cluster", (job) => job.cluster],
    ["Start", startText],
    ["Elapsed", (job) => duration(Math.round(elapsedS(job)))],
    ["Time limit", (job) => (known(job.time_limit_s) ? duration(job.time_limit_s) : null)],
    ["Cores", (job) => job.cores],
    ["GPUs", (job) => job.gpus],
    ["Memory a node", (job) => (known(job.memory_bytes) ? bytes(job.memory_bytes) : null)],
    ["Nodes", nodeText],
];

function row(name, texts) {
    const differs = new Set(texts).size > 1;
    return element("tr", { className: differs ? "differs" : "" }, element("th", { scope: "row" }, element("bdi", {}, name)),
        ...texts.map((text) => element("td", {}, element("bdi", {}, text))));
}

/** Returns rows of the metrics that were not sampled alike. */
function samplingRows(plans) {
    const periods = plans.map(({ metrics }) => new Map(metrics.filter(({ level }) => level === null).map((one) => [one.metric, one.periods.join(", ")])));
    const metrics = [...new Set(periods.flatMap((of) => [...of.keys()]))].sort();
    const lines = metrics.map((metric) => [metric, periods.map((of) => of.get(metric) ?? "not sampled")]);
    return lines.filter(([, texts]) => new Set(texts).size > 1).map(([metric, texts]) => row(metric, texts));
}

/** Creates a table with a column for each job. */
function sideTable(caption, jobs, rows) {
    const heads = jobs.map(({ side, job }) => element("th", { scope: "col" }, `${side.toUpperCase()}: `,
        element("a", { href: `job?key=${job.key}` }, element("bdi", {}, idText(job)))));
    const table = element("table", { className: "facts" }, element("caption", {}, caption),
        element("thead", {}, element("tr", {}, element("th", { scope: "col" }, ""), ...heads)), element("tbody", {}, ...rows));
    return element("div", { className: "scroll" }, table);
}

/** Creates the table of the facts. The sampling is added when it is known: many metrics are folded. */
export function factTable(jobs) {
    const lines = FACTS.map(([name, text]) => [name, jobs.map(({ job }) => text(job))]).filter(([, texts]) => texts.some(known));
    const rows = lines.map(([name, texts]) => row(name, texts.map((text) => (known(text) ? String(text) : "–"))));
    const place = element("section", {}, sideTable("Request and nodes", jobs, rows));
    const loads = Promise.all(jobs.map(({ job }) => get(`jobs/${job.key}/sampling`))).then((plans) => {
        const different = samplingRows(plans);
        if (different.length === 0) return;
        const count = `${different.length} ${different.length === 1 ? "metric was" : "metrics were"} not sampled alike`;
        place.append(element("details", { className: "figures", open: different.length <= OPEN_ROWS_MAX }, element("summary", {}, count),
            sideTable("Periods of the metrics that were not sampled alike", jobs, different)));
    }, () => {
        place.append(element("p", { className: "remark" }, "The sampling of the jobs is not known at present."));
    });
    place.loaded = () => loads;
    return place;
}
