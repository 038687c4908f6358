// The page that compares jobs: two, or two groups.

import { element } from "../shared/text.js";
import { get } from "./api.js";
import { comparedCharts } from "./compared_charts.js";
import { factTable } from "./compared_facts.js";
import { comparedFunctions } from "./compared_functions.js";
import { comparisonTable } from "./comparison_table.js";
import { isComplete, isReady, notice, openPage, run } from "./frame.js";
import { idText, ownerText, startText, stateText, trendLink } from "./job_text.js";
import { bandsOf } from "./marks.js";

const SIDES = ["a", "b"];

/** Jobs that are offered where an id stands for several. */
const OFFERED_MAX = 20;

const keysOf = (text) => (text ?? "").split(",").filter((key) => /^\d+$/.test(key));

/** Returns the keys of the jobs that a text names, and the names that stand for none or for several jobs. */
async function resolve(text) {
    const names = text.split(/[\s,]+/).filter(Boolean);
    const found = await Promise.all(names.map(async (name) => {
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
    const links = jobs.flatMap((job) => {
        const query = new URLSearchParams(Object.fromEntries(SIDES.map((one) => [one, [...chosen[one], ...(one === side ? [job.key] : [])].join(",")])));
        const text = `${idText(job)} of ${ownerText(job)}, ${startText(job)}, ${stateText(job)}`;
        return [element("a", { href: `compare?${query}` }, element("bdi", {}, text)), " · "];
    });
    return element("p", { className: "notice" }, element("bdi", {}, name), ` stands for ${jobs.length} jobs. Take one: `, ...links.slice(0, -1));
}

/** Creates the form that names the jobs of both sides. */
function sideForm(sides) {
    const inputs = Object.fromEntries(SIDES.map((side) => [side, element("input", { name: side, value: sides[side], autocomplete: "off" })]));
    const labels = SIDES.map((side) => element("label", {}, element("span", {}, side === "a" ? "Jobs of side A" : "Jobs of side B"), inputs[side]));
    const answers = element("div", { role: "status" });
    const form = element("form", { className: "filters" }, ...labels, element("button", { type: "submit" }, "Compare"));
    form.addEventListener("submit", async (event) => {
        event.preventDefault();
        answers.replaceChildren();
        const resolved = Object.fromEntries(await Promise.all(SIDES.map(async (side) => [side, await resolve(inputs[side].value)])));
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
        main.append(heading, sideForm(Object.fromEntries(SIDES.map((side) => [side, keys[side].map((key) => `key:${key}`).join(", ")]))));
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
    const form = sideForm(Object.fromEntries(SIDES.map((side) => [side, keys[side].map((key) => `key:${key}`).join(", ")])));
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
