// The page of a job.

import { clockText, dateText, element } from "../shared/text.js";
import { get } from "./api.js";
import { subjectCharts } from "./charts.js";
import { completenessSection } from "./completeness.js";
import { jobSubject } from "./course_loader.js";
import { findingList } from "./findings.js";
import { isComplete, isReady, mayChange, notice, openPage, run } from "./frame.js";
import { jobHead } from "./job_head.js";
import { follow } from "./live.js";
import { liveValues } from "./live_values.js";
import { bandsOf } from "./marks.js";
import { meterList } from "./meters.js";
import { quantitiesOfMetrics } from "./metric_quantities.js";
import { repeat, repeatFailed } from "./repeat.js";
import { samplingSection } from "./sampling.js";

/** Seconds between requests for new values: those of a part of the charts, within these bounds. */
const REFRESH_S = [2, 60];
const SUMMARY_S = 30;
/** While a stream brings the values, only what it lacks is asked for. */
const WITH_STREAM_S = 60;
/** After an interruption, the values that the agents have kept follow within some seconds. */
const KEPT_S = 15;
/** Milliseconds between two updates of the elapsed time. */
const TICK_MS = 1000;

/** Draws the values of the job's stream, and tells what else has changed. Returns true from `isConnected` while they arrive. */
function followValues(job, charts, changed) {
    const values = liveValues();
    const metrics = () => [...new Set(charts.chosen().flatMap(({ terms }) => terms.map(({ metric }) => metric)))];
    let isFirst = true;
    let drawing = null;
    let latest_us = 0;
    // The values of many nodes come in several events.
    const draw = (time_us) => {
        latest_us = time_us;
        drawing ??= requestAnimationFrame(() => { drawing = null; charts.extend(values, latest_us); });
    };
    const stream = follow(job, metrics, ({ name, data }) => {
        if (name === "series") values.describe(data.series);
        else if (name === "values") draw(values.add(data));
        else if (name !== "job") changed(name, data);
        // What was missed between two streams is in the store.
        else if (!isFirst) charts.update();
        if (name === "job") isFirst = false;
    }, (isThere) => {
        if (!isThere) {
            const since = clockText(Date.now() / 1000, 1);
            return notice("connection", `No connection to the collector since ${since}. These are the last values that arrived; the page tries to connect again.`);
        }
        notice("connection", "");
        repeatFailed();
        return setTimeout(() => charts.update(), KEPT_S * 1000);
    });
    charts.onChoice = stream.renew;
    return stream;
}

/** Returns links to the other runs of the job, and to the array that it belongs to. */
function relatedLinks(job, summary) {
    const runs = summary.runs.filter((run) => run.key !== job.key).toReversed();
    const run = ({ key, started_us, state }) =>
        element("a", { href: `job?key=${key}` }, `${dateText(started_us / 1e6)}${state ? ` ${state}` : ""}`);
    const [, whole, sign] = /^(\d+)([_+])\d+$/.exec(job.display_id ?? "") ?? [];
    const parts = whole ? [element("a", { href: `./?id=${whole}` }, `${sign === "_" ? "All tasks of the array" : "All components of"} ${whole}`)] : [];
    const others = runs.length > 0 ? [`This job ran ${runs.length + 1} times; the other runs started: `, ...runs.flatMap((one) => [run(one), " "])] : [];
    return [...others, ...parts];
}

/** Shows the meters, the findings and the completeness. */
function summarySections(job) {
    const meters = element("section", {}, element("h2", { id: "usage" }, "Use of the resources"));
    const findings = element("section", {}, element("h2", { id: "findings" }, "Findings"));
    meters.setAttribute("aria-labelledby", "usage");
    findings.setAttribute("aria-labelledby", "findings");
    const meterPlace = element("div");
    const findingPlace = element("div", {}, element("p", { className: "soft" }, "…"));
    meters.append(meterPlace);
    findings.append(findingPlace);
    const data = completenessSection();
    const related = element("p", { className: "soft", hidden: true });
    const load = async () => {
        const [summary, { losses }] = await Promise.all([get(`jobs/${job.key}/summary`), get(`jobs/${job.key}/losses`)]);
        meters.hidden = !summary.meters;
        meterPlace.replaceChildren(meterList(summary.meters ?? []));
        findingPlace.replaceChildren(summary.findings.length > 0 ? findingList(summary.findings) : element("p", {}, job.ended_us === null ? "None so far." : summary.no_findings));
        data.show(summary, losses);
        related.replaceChildren(...relatedLinks(job, summary));
        related.hidden = related.childNodes.length === 0;
    };
    return { meters, findings, data, related, load };
}

run(async () => {
    const key = new URLSearchParams(location.search).get("key") ?? "";
    if (!/^\d+$/.test(key)) throw new Error("the address has no key of a job");
    // The user is asked for a token at most once, for all of them.
    const [{ main, user }, job, { metrics }] = await Promise.all([openPage(), get(`jobs/${key}`), get(`jobs/${key}/metrics`)]);
    const isRunning = job.ended_us === null;
    const head = jobHead(job);
    const { meters, findings, data, related, load: loadSummary } = summarySections(job);
    const nodes = job.nodes.toSorted();
    const quantities = quantitiesOfMetrics(metrics);
    const charts = quantities.length > 0 ? subjectCharts(jobSubject(job), quantities, nodes) : null;
    const sampling = samplingSection(job, mayChange(user) && (user.uid === 0 || user.uid === job.uid));
    const noSamples = element("p", { className: "soft" }, "There are no samples yet.");
    main.append(head, related, element("div", { className: "two" }, meters, findings), charts ?? noSamples);
    main.append(sampling, data);
    await charts?.begin();
    isReady();

    const loadMarks = async () => {
        const { marks } = await get(`jobs/${key}/marks`);
        charts?.mark(bandsOf(marks, job.started_us, charts.data.span_s));
    };
    sampling.describe(metrics);
    const loadDetails = () => Promise.all([loadSummary(), sampling.load()]);
    await Promise.all([loadMarks(), isRunning ? repeat(SUMMARY_S, loadDetails, { isVital: false }) : loadDetails()]);
    isComplete();
    if (!isRunning) return;
    let latest = job;
    const show = (now) => {
        latest = now;
        head.show(now);
    };
    // The elapsed time.
    const tick = setInterval(() => head.show(latest), TICK_MS);
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
