// The page of a job.

import { bytes, dateText, element, plainNumber } from "../shared/text.js";
import { get } from "./api.js";
import { subjectCharts } from "./charts.js";
import { completenessPanel } from "./completeness.js";
import { jobSubject } from "./course_loader.js";
import { findingList } from "./findings.js";
import { firingPanel } from "./firings.js";
import { isComplete, isReady, mayChange, notice, openPage, run } from "./frame.js";
import { jobHead } from "./job_head.js";
import { trendLink } from "./job_text.js";
import { bandsOf, firingMarks, keptBands } from "./marks.js";
import { meterList } from "./meters.js";
import { quantitiesOfMetrics } from "./metric_quantities.js";
import { partPanels } from "./part_panels.js";
import { repeat } from "./repeat.js";
import { runPanel } from "./run_panel.js";
import { samplingPanel } from "./sampling.js";
import { tabs } from "./tabs.js";

/** Seconds between requests for new values: those of a part of the charts, within these bounds. */
const REFRESH_S = [2, 60];
const SUMMARY_S = 30;
/** While a stream brings the values, only what it lacks is asked for. */
const WITH_STREAM_S = 60;
/** Milliseconds between two updates of the elapsed time. */
const TICK_MS = 1000;

/** Returns links to the other runs of the job, and to the array that it belongs to. */
function relatedLinks(job, summary) {
    const runs = summary.runs.filter((run) => run.key !== job.key).toReversed();
    const run = ({ key, started_us, state }) =>
        element("a", { href: `job?key=${key}` }, `${dateText(started_us / 1e6)}${state ? ` ${state}` : ""}`);
    const [, whole, sign] = /^(\d+)([_+])\d+$/.exec(job.display_id ?? "") ?? [];
    const parts = whole ? [element("a", { href: `./?id=${whole}` }, `${sign === "_" ? "All tasks of the array" : "All components of"} ${whole}`)] : [];
    const others = runs.length > 0 ? [`This job ran ${runs.length + 1} times; the other runs started: `, ...runs.flatMap((one) => [run(one), " "])] : [];
    const compare = element("a", { href: `compare?a=${job.key}` }, "Compare with another job");
    const trend = job.name ? [" · ", element("a", { href: trendLink(job) }, "Trend of the runs of this name")] : [];
    return [...others, ...parts, " ", compare, ...trend];
}

/** Returns the sections about the regions of the program and its place below the roofs, if they are known. */
async function programSections({ regions, roofline }) {
    const sections = [];
    if ((regions ?? []).length > 0) {
        const { regionSection } = await import("./region_table.js");
        sections.push(regionSection(regions));
    }
    if (roofline) {
        const { rooflineSection } = await import("./roofline.js");
        sections.push(rooflineSection(roofline));
    }
    return sections;
}

/** Shows the findings, the meters and the completeness. */
function summarySections(job, head, charts, rangeLink) {
    const meters = element("section", {}, element("h2", { id: "usage", className: "unseen" }, "Use of the resources"));
    const findings = element("section", {}, element("h2", { id: "findings", className: "unseen" }, "Findings"));
    meters.setAttribute("aria-labelledby", "usage");
    findings.setAttribute("aria-labelledby", "findings");
    const meterPlace = element("div");
    const findingPlace = element("div", {}, element("p", { className: "soft" }, "…"));
    meters.append(meterPlace);
    findings.append(findingPlace);
    const fired = firingPanel();
    const data = completenessPanel();
    const related = element("p", { className: "soft", hidden: true });
    const functions = element("div");
    const program = element("div");
    const load = async () => {
        const [summary, { losses }] = await Promise.all([get(`jobs/${job.key}/summary`), get(`jobs/${job.key}/losses`)]);
        meters.hidden = !summary.meters;
        meterPlace.replaceChildren(meterList(summary.meters ?? []));
        const none = job.ended_us === null ? "No findings so far." : `Findings: ${summary.no_findings}`;
        findingPlace.replaceChildren(summary.findings.length > 0 ? findingList(summary) : element("p", { className: "soft" }, none));
        data.show(summary, losses);
        head.summarize(summary);
        head.listKept(summary.kept ?? [], rangeLink);
        fired.show(summary.firings ?? []);
        if (summary.extents) charts?.fold(summary.extents);
        const sampled = summary.call_stacks ?? [];
        if (sampled.length > 0 && !functions.hasChildNodes()) {
            const { functionSection } = await import("./functions.js");
            if (!functions.hasChildNodes()) functions.append(functionSection(job, sampled, charts));
        }
        program.replaceChildren(...await programSections(summary));
        related.replaceChildren(...relatedLinks(job, summary));
        related.hidden = related.childNodes.length === 0;
    };
    return { meters, findings, fired, data, related, functions, program, load };
}

/** Returns what was requested, by quantity: on one node, since the charts show nodes. */
function requestsOf(job) {
    const nodes = Math.max(job.nodes.length, 1);
    const each = nodes > 1 ? " a node" : "";
    const requests = {};
    if (job.cores) {
        const cores = job.cores / nodes;
        requests.cores = { value: cores, text: `requested: ${plainNumber(cores)} ${cores === 1 ? "core" : "cores"}${each}` };
    }
    if (job.memory_bytes) requests.memory = { value: job.memory_bytes, text: `requested: ${bytes(job.memory_bytes)}${each}` };
    return requests;
}

/** Shows the range that the address names, in seconds since the start. */
function showNamedRange(charts) {
    const query = new URLSearchParams(location.search);
    const [from, until] = ["from", "until"].map((name) => Number(query.get(name) ?? NaN));
    if (until > from) charts.axis.show(from, until);
}

/** Returns a function that makes a link to a range of the charts, which are shown there without a new page. */
function linkOfRange(charts, rangeLink) {
    return (text, from, until) => {
        const link = element("a", { href: rangeLink(from, until) }, text);
        link.addEventListener("click", (event) => {
            if (!charts || event.ctrlKey || event.metaKey || event.shiftKey) return;
            event.preventDefault();
            charts.axis.show(from, until);
            charts.scrollIntoView();
        });
        return link;
    };
}

/** Returns the key of the job that the address names by its key, or by the scheduler's id; null after a list of several jobs with the id was shown. */
async function keyOfAddress() {
    const query = new URLSearchParams(location.search);
    const [key, id, cluster] = ["key", "id", "cluster"].map((name) => query.get(name) ?? "");
    if (/^\d+$/.test(key)) return key;
    if (!id) throw new Error("the address has no key and no id of a job");
    const { jobs } = await get("jobs", { id, cluster });
    if (jobs.length === 0) throw new Error(`there is no job ${id}${cluster ? ` of ${cluster}` : ""}, or it is not yours`);
    if (jobs.length === 1) return String(jobs[0].key);
    const { main } = await openPage();
    document.title = `Jobs ${id} · Polymeter`;
    const { jobTable } = await import("./job_rows.js");
    const list = jobTable("same-id", `Jobs with the id ${id}`);
    main.append(element("h1", {}, "Job ", element("bdi", {}, id)), list);
    list.show(jobs);
    isReady();
    isComplete();
    return null;
}

run(async () => {
    const key = await keyOfAddress();
    if (key === null) return;
    // The user is asked for a token at most once, for all of them.
    const [{ main, user }, job, { metrics }] = await Promise.all([openPage(), get(`jobs/${key}`), get(`jobs/${key}/metrics`)]);
    const isRunning = job.ended_us === null;
    const head = jobHead(job);
    const nodes = job.nodes.toSorted();
    const quantities = quantitiesOfMetrics(metrics);
    const rangeLink = (from, until) => `job?key=${key}&from=${from.toFixed(3)}&until=${until.toFixed(3)}`;
    const charts = quantities.length > 0
        ? subjectCharts(jobSubject(job), quantities, nodes, { requests: requestsOf(job), rangeLink }) : null;
    const { meters, findings, fired, data, related, functions, program: parts, load: loadSummary } = summarySections(job, head, charts, linkOfRange(charts, rangeLink));
    const sampling = samplingPanel(job, mayChange(user) && (user.uid === 0 || user.uid === job.uid));
    const program = runPanel(job);
    const noSamples = element("p", { className: "soft" }, isRunning ? "There are no samples yet." : "No samples of this job are stored.");
    main.append(head, findings, fired, related, meters, charts ?? noSamples, parts, functions);
    await charts?.begin();
    isReady();
    if (charts) showNamedRange(charts);
    main.append(tabs("Details of the job", [
        ...partPanels(job, metrics), { id: "sampling", title: "Sampling", contents: sampling }, { id: "completeness", title: "Completeness", contents: data },
        ...(program ? [{ id: "program", title: "Program", contents: program }] : []),
    ]));

    const loadMarks = async () => {
        const [{ marks }, { kept_intervals: kept }, { firings }] = await Promise.all(
            ["marks", "kept-intervals", "firings"].map((name) => get(`jobs/${key}/${name}`)));
        if (!charts) return;
        const shown = bandsOf(marks, job.started_us, charts.data.span_s);
        charts.mark({
            bands: [...shown.bands, ...keptBands(kept, job.started_us)],
            marks: [...shown.marks, ...firingMarks(firings, job.started_us)],
        });
    };
    sampling.describe(metrics);
    const loadDetails = () => Promise.all([loadSummary(), sampling.load()]);
    await Promise.all([loadMarks(), isRunning ? repeat(SUMMARY_S, loadDetails, { isVital: false }) : loadDetails()]);
    isComplete();
    if (!isRunning) return;
    const { followValues } = await import("./follow_values.js");
    let latest = job;
    const show = (now) => {
        latest = now;
        head.show(now);
    };
    // The elapsed time.
    const tick = setInterval(() => {
        head.show(latest);
        if (stream) head.age(stream.age_s());
    }, TICK_MS);
    const hasEnded = async () => {
        clearInterval(tick);
        notice("ended", "The job has ended. Load the page anew for its final state.");
        show(await get(`jobs/${key}`));
    };
    const stream = charts && followValues(job, charts, (name, event) => {
        if (name === "plan") sampling.load();
        if (name === "mark") loadMarks();
        if (name === "end" && event.reason === "ended") hasEnded();
    });
    const seconds = () => (stream?.isConnected() ? WITH_STREAM_S : Math.min(Math.max(charts?.part_s() ?? 5, REFRESH_S[0]), REFRESH_S[1]));
    await repeat(seconds, async () => {
        const now = await get(`jobs/${key}`);
        show(now);
        if (now.ended_us !== null) return hasEnded();
        if (!charts) {
            if ((await get(`jobs/${key}/metrics`)).metrics.length > 0) location.reload();
            return null;
        }
        return stream.isConnected() ? null : Promise.all([charts.update(), loadMarks()]);
    }, { isVital: false });
});
