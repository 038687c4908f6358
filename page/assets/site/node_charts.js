// The charts of a node: its own quantities in a time, with the jobs that ran there, or a job with the node in the time of the job.

import { element } from "../shared/text.js";
import { PHASE_COLOURS } from "../shared/theme.js";
import { get } from "./api.js";
import { subjectCharts } from "./charts.js";
import { jobSubject, nodeSubject } from "./course_loader.js";
import { quantitiesOf } from "./job_quantities.js";
import { idText } from "./job_text.js";
import { bandsOf } from "./marks.js";
import { OWN_QUANTITIES } from "./node_quantities.js";

/** The times that administrators can choose, in seconds. */
const TIMES = [[3600, "the last hour"], [21600, "the last 6 hours"], [86400, "the last day"], [604800, "the last week"]];

const jobName = (job) => `${idText(job)}${job.name ? ` ${job.name}` : ""}`;

/** Returns the times of jobs as phases of the node. */
function bandsOfJobs(jobs, begin_us, span_s) {
    const bands = jobs.slice(0, PHASE_COLOURS.length * 4).map((job) => ({
        name: `job ${idText(job)}`,
        begin_s: Math.max((job.started_us - begin_us) / 1e6, 0),
        end_s: job.ended_us === null ? span_s : (job.ended_us - begin_us) / 1e6,
    }));
    return { bands: bands.filter((band) => band.end_s > 0), marks: [] };
}

/** Returns the quantities of the node itself and of a job there, with titles that tell which is which. */
function quantitiesDuring(ofNode, ofJob, node) {
    const own = quantitiesOf(ofNode, OWN_QUANTITIES).map((one) => ({
        ...one, title: one.is_main ? `Node: ${one.title}` : one.title, query: { of: "nodes", node },
    }));
    const used = quantitiesOf(ofJob).filter((one) => !ofNode.some((series) => one.factors.has(series.id)));
    const jobs = used.map((one) => ({ ...one, title: one.is_main ? `Job: ${one.title}` : one.title }));
    return [...own.filter((one) => one.is_main), ...jobs.filter((one) => one.is_main), ...own.filter((one) => !one.is_main), ...jobs.filter((one) => !one.is_main)];
}

/** Creates the section. The series of a node are for administrators; users see them in the times of their jobs. */
export function nodeCharts(node, isAdministrator) {
    const choice = element("select");
    const contents = element("div");
    const place = element("section", {}, element("h2", { id: "node-charts" }, "The node over time"),
        element("div", { className: "controls" }, element("label", {}, "Show ", choice)), contents);
    place.setAttribute("aria-labelledby", "node-charts");
    let jobs = new Map();
    let shown = null;
    let charts = null;

    const draw = async (subject, quantities) => {
        if (quantities.length === 0) {
            contents.replaceChildren(element("p", { className: "soft" }, "There are no samples in this time."));
            return null;
        }
        const made = subjectCharts(subject, quantities, [node], { title: null });
        contents.replaceChildren(made);
        await made.begin();
        return made;
    };
    const ofTime = async (seconds) => {
        const { series } = await get(`nodes/${encodeURIComponent(node)}/series`);
        const subject = nodeSubject(node, Math.round((Date.now() / 1000 - seconds) * 1e6));
        const made = await draw(subject, quantitiesOf(series, OWN_QUANTITIES));
        if (made) made.showJobs = () => made.mark(bandsOfJobs([...jobs.values()], subject.started_us, made.data.span_s));
        return made;
    };
    const ofJob = async (job) => {
        const [ofNode, own] = await Promise.all([get(`jobs/${job.key}/series`, { of: "nodes", node }), get(`jobs/${job.key}/series`, { node })]);
        const made = await draw(jobSubject(job), quantitiesDuring(ofNode.series, own.series, node));
        const { marks } = made ? await get(`jobs/${job.key}/marks`) : { marks: [] };
        made?.mark(bandsOf(marks.filter((mark) => mark.node === node), job.started_us, made.data.span_s));
        return made;
    };
    const show = async () => {
        if (shown === choice.value || choice.value === "") return;
        const value = choice.value;
        shown = value;
        charts?.close();
        charts = null;
        const job = jobs.get(value);
        const made = job ? await ofJob(job) : await ofTime(Number(value.slice(1)));
        if (shown !== value) return;
        charts = made;
        charts?.showJobs?.();
        place.dataset.shown = value;
    };
    choice.addEventListener("change", show);

    /** Sets the jobs that can be chosen. */
    place.offer = (list) => {
        const next = new Map(list.map((job) => [String(job.key), job]));
        if ([...next.keys()].join() !== [...jobs.keys()].join() || choice.options.length === 0) {
            const before = choice.value;
            const times = TIMES.map(([seconds, text]) => element("option", { value: `t${seconds}` }, text));
            const options = list.map((job) => element("option", { value: String(job.key) }, `the time of job ${jobName(job)}`));
            choice.replaceChildren(...(isAdministrator ? times : []), ...options);
            if ([...choice.options].some(({ value }) => value === before)) choice.value = before;
        }
        jobs = next;
        place.hidden = choice.options.length === 0;
        charts?.showJobs?.();
        return show();
    };
    /** Loads newer values. */
    place.update = () => {
        const job = jobs.get(shown);
        return charts && (!job || job.ended_us === null) ? charts.update() : null;
    };
    return place;
}
