// The page that compares jobs: two, or two groups.

import { element } from "../shared/text.js";
import { get } from "./api.js";
import { comparedCharts } from "./compared_charts.js";
import { factTable } from "./compared_facts.js";
import { comparedFunctions } from "./compared_functions.js";
import { comparisonTable } from "./comparison_table.js";
import { isComplete, isReady, notice, openPage, run } from "./frame.js";
import { elapsedText, idText, ownerText, startText, stateText, trendLink } from "./job_text.js";
import { bandsOf } from "./marks.js";

const SIDES = ["a", "b"];

/** Jobs that are offered where an id stands for several. */
const OFFERED_MAX = 20;

const keysOf = (text) => (text ?? "").split(",").filter((key) => /^\d+$/.test(key));

/** Returns the link that takes a job for a side, beside those that are chosen. */
function takingLink(side, job, chosen) {
    const query = new URLSearchParams(Object.fromEntries(SIDES.map((one) => [one, [...chosen[one], ...(one === side ? [job.key] : [])].join(",")])));
    const text = [`${idText(job)}${job.name ? ` ${job.name}` : ""} of ${ownerText(job)}`, startText(job), elapsedText(job), stateText(job)].join(", ");
    return element("a", { href: `compare?${query}` }, element("bdi", {}, text));
}

/** Lists jobs with which a job may be compared: the other runs of its name first. */
async function candidates(side, job, chosen) {
    const of = (parameters) => get("jobs", { ...parameters, limit: OFFERED_MAX }).then(({ jobs }) => jobs.filter(({ key }) => key !== job.key));
    const [named, latest] = await Promise.all([job.name ? of({ name: job.name }) : [], of({})]);
    const runs = named.filter(({ name, uid }) => name === job.name && uid === job.uid);
    const others = latest.filter(({ key }) => !runs.some((one) => one.key === key));
    const list = (title, jobs) => (jobs.length === 0 ? []
        : [element("h2", {}, title), element("ul", {}, ...jobs.map((one) => element("li", {}, takingLink(side, one, chosen))))]);
    return [...list("Other runs of this name", runs), ...list("Latest jobs", others)];
}

/** Returns the keys of the jobs that a text names, and the names that stand for none or for several jobs. Those of `known` stand for their keys. */
async function resolve(text, known) {
    const names = text.split(/[\s,]+/).filter(Boolean);
    const found = await Promise.all(names.map(async (name) => {
        if (known.has(name)) return { name, jobs: [{ key: known.get(name) }] };
        if (/^key:\d+$/.test(name)) return { name, jobs: [{ key: Number(name.slice(4)) }] };
        const { jobs } = await get("jobs", { id: name, limit: OFFERED_MAX });
        return { name, jobs };
    }));
    const unclear = found.filter(({ jobs }) => jobs.length !== 1);
    return { keys: found.flatMap(({ jobs }) => (jobs.length === 1 ? [jobs[0].key] : [])), unclear };
}

/** Lists the jobs of a name that stands for several: each is a link that takes it. */
function offer(side, { name, jobs }, chosen) {
    if (jobs.length === 0) return element("p", { className: "notice" }, "There is no job ", element("bdi", {}, name), " that you may see.");
    const links = jobs.flatMap((job) => [takingLink(side, job, chosen), " · "]);
    return element("p", { className: "notice" }, element("bdi", {}, name), ` stands for ${jobs.length} jobs. Take one: `, ...links.slice(0, -1));
}

/** Creates the form that names the jobs of both sides: at first the chosen ones. */
function sideForm(jobs) {
    // The runs of a requeued job have one id.
    const nameOf = ({ job }) => (jobs.some((one) => one.job.key !== job.key && idText(one.job) === idText(job)) ? `key:${job.key}` : idText(job));
    const known = new Map(jobs.map((one) => [nameOf(one), one.job.key]));
    const value = (side) => jobs.filter((one) => one.side === side).map(nameOf).join(", ");
    const inputs = Object.fromEntries(SIDES.map((side) => [side, element("input", { name: side, value: value(side), autocomplete: "off" })]));
    const labels = SIDES.map((side) => element("label", {}, element("span", {}, side === "a" ? "Jobs of side A" : "Jobs of side B"), inputs[side]));
    const answers = element("div", { role: "status" });
    const form = element("form", { className: "filters" }, ...labels, element("button", { type: "submit" }, "Compare"));
    form.addEventListener("submit", async (event) => {
        event.preventDefault();
        answers.replaceChildren();
        const resolved = Object.fromEntries(await Promise.all(SIDES.map(async (side) => [side, await resolve(inputs[side].value, known)])));
        const chosen = Object.fromEntries(SIDES.map((side) => [side, resolved[side].keys]));
        const unclear = SIDES.flatMap((side) => resolved[side].unclear.map((one) => offer(side, one, chosen)));
        if (unclear.length > 0) return answers.replaceChildren(...unclear);
        if (SIDES.some((side) => chosen[side].length === 0)) {
            return answers.replaceChildren(element("p", { className: "notice" }, "Name a job on each side: its id, or several, separated by commas."));
        }
        location.search = new URLSearchParams(Object.fromEntries(SIDES.map((side) => [side, chosen[side].join(",")]))).toString();
        return null;
    });
    return element("div", {}, form, answers);
}

/** Loads what the page shows about one job. */
async function load(side, key) {
    const [job, { metrics }, { marks }] = await Promise.all([get(`jobs/${key}`), get(`jobs/${key}/metrics`), get(`jobs/${key}/marks`)]);
    const end_us = job.ended_us ?? Date.now() * 1000;
    const { bands } = bandsOf(marks, job.started_us, (end_us - job.started_us) / 1e6);
    return { side, job, metrics, bands, span_s: Math.max((end_us - job.started_us) / 1e6, 1e-3) };
}

run(async () => {
    const query = new URLSearchParams(location.search);
    const keys = Object.fromEntries(SIDES.map((side) => [side, keysOf(query.get(side))]));
    const { main } = await openPage();
    const heading = element("h1", {}, "Compare jobs");
    if (SIDES.some((side) => keys[side].length === 0)) {
        const chosen = await Promise.all(SIDES.flatMap((side) => keys[side].map(async (key) => ({ side, job: await get(`jobs/${key}`) }))));
        const [{ side, job } = {}] = chosen;
        if (job) heading.replaceChildren("Compare ", element("bdi", {}, chosen.map((one) => idText(one.job)).join(", ")), " with another job");
        main.append(heading, sideForm(chosen), ...(job ? await candidates(side === "a" ? "b" : "a", job, keys) : []));
        isReady();
        return isComplete();
    }
    const compared = get("compare", { a: keys.a.join(","), b: keys.b.join(",") });
    // Its failure is shown below; that of a job comes first.
    compared.catch(() => {});
    const jobs = await Promise.all(SIDES.flatMap((side) => keys[side].map((key) => load(side, key))));
    const names = (side) => jobs.filter((one) => one.side === side).map(({ job }) => idText(job)).join(", ");
    heading.replaceChildren("Compare ", element("bdi", {}, names("a")), " with ", element("bdi", {}, names("b")));
    document.title = `${names("a")} and ${names("b")} · Polymeter`;
    const form = sideForm(jobs);
    const table = element("section", {}, element("p", { className: "soft" }, "…"));
    const charts = comparedCharts(jobs);
    const functions = SIDES.every((side) => keys[side].length === 1) ? comparedFunctions(jobs[0].job, jobs[1].job) : null;
    const facts = factTable(jobs);
    const [first, ...others] = jobs.map(({ job }) => job);
    const isOfOneName = first.name && others.every(({ name, uid }) => name === first.name && uid === first.uid);
    const trend = element("p", { className: "soft", hidden: !isOfOneName });
    if (isOfOneName) trend.append(element("a", { href: trendLink(first) }, "Trend of the runs of ", element("bdi", {}, first.name)));
    main.append(heading, trend, element("details", { className: "figures" }, element("summary", {}, "Other jobs"), form), table, charts, ...(functions ? [functions.section] : []), facts);
    charts.begin();
    isReady();
    await Promise.all([
        compared.then((comparison) => table.replaceChildren(comparisonTable(comparison)), (error) => {
            table.replaceChildren();
            notice("comparison", `The jobs cannot be compared: ${error.message}`);
        }),
        charts.loaded(),
        functions?.loaded.catch((error) => notice("functions", `The functions cannot be compared: ${error.message}`)),
        facts.loaded(),
    ]);
    return isComplete();
});
