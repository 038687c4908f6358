// Where the time of a job went: the flame graph of the range that the charts show.

import { showFlame } from "../flame/view.js";
import { clockText, element } from "../shared/text.js";
import { get } from "./api.js";

/** The time after a change of the range, in milliseconds, within which another one delays the request. */
const PAUSE_MS = 400;

/** Returns the section of a job that has call stacks by these `metrics`. */
export function functionSection(job, metrics, charts) {
    const range = element("p", { className: "soft" });
    const place = element("div", {}, element("p", { className: "soft" }, "…"));
    const choice = element("select", { "aria-label": "Metric" }, ...metrics.map((metric) => element("option", { value: metric }, metric)));
    choice.hidden = metrics.length < 2;
    let request = null;
    let pause = null;
    let drawn = "";

    const load = async () => {
        const [begin, end] = charts && !charts.axis.isFull() ? charts.axis.range : [null, null];
        const wanted = `${choice.value} ${begin} ${end}`;
        if (wanted === drawn) return;
        drawn = wanted;
        request?.abort();
        request = new AbortController();
        const time_us = (seconds) => (seconds === null ? null : Math.round(job.started_us + seconds * 1e6));
        const clock = (seconds) => clockText(job.started_us / 1e6 + seconds, 1);
        range.textContent = begin === null ? "The whole job. Choose a range on a chart to see its functions." : `From ${clock(begin)} until ${clock(end)}, as the charts.`;
        try {
            const data = await get(`jobs/${job.key}/stacks`, { metric: choice.value, from_us: time_us(begin), until_us: time_us(end) }, request.signal);
            if (data.nodes.length > 0) showFlame(data, place);
            else place.replaceChildren(element("p", { className: "soft" }, "There are no call stacks in this range."));
        } catch (error) {
            if (error.name === "AbortError") return;
            drawn = "";
            place.replaceChildren(element("p", { className: "soft" }, `The functions cannot be shown: ${error.message}.`));
        }
    };
    const later = () => {
        clearTimeout(pause);
        pause = setTimeout(load, PAUSE_MS);
    };
    choice.addEventListener("change", load);
    charts?.axis.listeners.push(later);
    const section = element("section", {}, element("h2", { id: "functions" }, "Where the time went"), choice, range, place);
    section.setAttribute("aria-labelledby", "functions");
    load();
    return section;
}
