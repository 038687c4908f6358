// The page of a node: its agent, its jobs, and the charts of a job there.

import { dateText, element } from "../shared/text.js";
import { get } from "./api.js";
import { isReady, openPage, run } from "./frame.js";
import { jobCharts } from "./job_charts.js";
import { quantitiesOf } from "./job_quantities.js";
import { jobTable } from "./job_rows.js";
import { idText } from "./job_text.js";
import { bandsOf } from "./marks.js";
import { repeat } from "./repeat.js";

const REFRESH_S = 10;
const PAST_MAX = 25;

/** Creates the section with the charts of one job on a node, which the reader chooses. */
function nodeCharts(node) {
    const choice = element("select");
    const contents = element("div");
    const place = element("div", {}, element("div", { className: "controls" }, element("label", {}, "Charts of job ", choice)), contents);
    let jobs = new Map();
    let shown = null;

    const show = async () => {
        const job = jobs.get(choice.value);
        if (!job || shown === choice.value) return;
        shown = choice.value;
        const { series } = await get(`jobs/${job.key}/series`, { node });
        const quantities = quantitiesOf(series);
        if (quantities.length === 0) {
            contents.replaceChildren(element("p", { className: "soft" }, "No samples."));
            return;
        }
        const charts = jobCharts(job, quantities, [node]);
        contents.replaceChildren(charts);
        await charts.begin();
        const { marks } = await get(`jobs/${job.key}/marks`);
        charts.mark(bandsOf(marks.filter((mark) => mark.node === node), job.started_us, charts.data.span_s));
        place.update = () => (job.ended_us === null ? charts.update() : null);
    };
    choice.addEventListener("change", show);
    place.update = () => null;
    /** Sets the jobs that can be chosen. */
    place.offer = (list) => {
        const next = new Map(list.map((job) => [String(job.key), job]));
        place.hidden = next.size === 0;
        if ([...next.keys()].join() !== [...jobs.keys()].join()) {
            const before = choice.value;
            choice.replaceChildren(...list.map((job) => element("option", { value: String(job.key) }, `${idText(job)}${job.name ? ` ${job.name}` : ""}`)));
            if (next.has(before)) choice.value = before;
        }
        jobs = next;
        return show();
    };
    return place;
}

run(async () => {
    const { main } = await openPage();
    const node = new URLSearchParams(location.search).get("name");
    if (!node) throw new Error("the address has no name of a node");
    document.title = `Node ${node} · Polymeter`;
    const agent = element("p", { className: "state" });
    const running = jobTable("running", "Running jobs");
    const past = jobTable("ended", "Ended jobs");
    const charts = nodeCharts(node);
    main.append(element("h1", {}, "Node ", element("bdi", {}, node)), agent, running, charts, past);
    await repeat(REFRESH_S, async () => {
        const [{ nodes }, now, ended] = await Promise.all([
            get("nodes"), get("jobs", { node, state: "running" }), get("jobs", { node, state: "ended", limit: PAST_MAX }),
        ]);
        const found = nodes.find((one) => one.node === node);
        agent.textContent = found ? `Agent connected since ${dateText(found.started_us / 1e6)}` : "No connected agent, or no job of yours runs there now.";
        running.show(now.jobs);
        past.show(ended.jobs);
        await charts.offer([...now.jobs, ...ended.jobs]);
        await charts.update();
    });
    isReady();
});
