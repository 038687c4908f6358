// Where the time of a job went: the flame graph of the range that the charts show, of all processes or one, or
// its difference from another choice.

import { missingParts, showFlame } from "../flame/view.js";
import { clockText, element } from "../shared/text.js";
import { get } from "./api.js";

/** The time after a change of the range, in milliseconds, within which another one delays the request. */
const PAUSE_MS = 400;

const option = (value, text = value) => element("option", { value }, text);

/** Returns the parameters of a choice, whose names begin with `prefix`. */
function parametersOf({ begin, end, process }, started_us, prefix = "") {
    const [, id = null, node = null] = /^(\d+) on ([^,]+)/.exec(process) ?? [];
    const time_us = (seconds) => (seconds === null ? null : Math.round(started_us + seconds * 1e6));
    return {
        [`${prefix}process`]: id, [`${prefix}node`]: node,
        [`${prefix}from_us`]: time_us(begin), [`${prefix}until_us`]: time_us(end),
    };
}

function choiceText({ begin, end, process }, started_us) {
    const clock = (seconds) => clockText(started_us / 1e6 + seconds, 1);
    const time = begin === null ? "the whole job" : `from ${clock(begin)} until ${clock(end)}`;
    return process ? `process ${process}, ${time}` : time;
}

/** Returns the section of a job, whose call stacks are summarized by `stacks`: one for each metric. */
export function functionSection(job, stacks, charts) {
    const range = element("p", { className: "soft", "aria-live": "polite" });
    const place = element("div", {}, element("p", { className: "soft" }, "…"));
    const metric = element("select", { "aria-label": "Metric" }, ...stacks.map((one) => option(one.metric)));
    metric.hidden = stacks.length < 2;
    const process = element("select", { "aria-label": "Process" });
    const keep = element("button", { type: "button" }, "Compare with this");
    const stop = element("button", { type: "button", hidden: true }, "Stop comparing");
    let kept = null;
    let request = null;
    let pause = null;
    let drawn = "";

    const listProcesses = () => {
        const names = stacks.find((one) => one.metric === metric.value)?.by_process.map(({ name }) => name) ?? [];
        process.replaceChildren(option("", "All processes"), ...names.map((name) => option(name, `Process ${name}`)));
        process.hidden = names.length < 2;
    };
    const chosen = () => {
        const [begin, end] = charts && !charts.axis.isFull() ? charts.axis.range : [null, null];
        return { begin, end, process: process.value };
    };
    const describe = (choice) => {
        const text = choiceText(choice, job.started_us);
        if (kept) return `Before: ${choiceText(kept, job.started_us)}. After: ${text}. Orange functions have a larger share than before, blue ones a smaller.`;
        const hint = choice.begin === null ? " Choose a range on a chart to see its functions." : "";
        return `${text[0].toUpperCase()}${text.slice(1)}.${hint}`;
    };
    const load = async () => {
        const choice = chosen();
        const wanted = JSON.stringify([metric.value, choice, kept]);
        if (wanted === drawn) return;
        drawn = wanted;
        request?.abort();
        request = new AbortController();
        range.textContent = describe(choice);
        const against = kept ? { against: job.key, ...parametersOf(kept, job.started_us, "against_") } : {};
        const parameters = { metric: metric.value, ...parametersOf(choice, job.started_us), ...against };
        try {
            const data = await get(`jobs/${job.key}/stacks`, parameters, request.signal);
            if (data.nodes.length > 0) showFlame(data, place);
            else place.replaceChildren(element("p", { className: "soft" }, "There are no call stacks in this range."), ...missingParts(data));
        } catch (error) {
            if (error.name === "AbortError") return;
            drawn = "";
            place.replaceChildren(element("p", { className: "soft" }, `The functions cannot be shown: ${error.message}.`));
        }
    };
    const compare = (choice) => {
        kept = choice;
        stop.hidden = kept === null;
        keep.hidden = kept !== null;
        (kept ? stop : keep).focus();
        load();
    };
    keep.addEventListener("click", () => compare(chosen()));
    stop.addEventListener("click", () => compare(null));
    const later = () => {
        clearTimeout(pause);
        pause = setTimeout(load, PAUSE_MS);
    };
    metric.addEventListener("change", () => {
        listProcesses();
        load();
    });
    process.addEventListener("change", load);
    charts?.axis.listeners.push(later);
    const section = element("section", {}, element("h2", { id: "functions" }, "Where the time went"),
        element("div", { className: "controls" }, metric, process, keep, stop), range, place);
    section.setAttribute("aria-labelledby", "functions");
    listProcesses();
    load();
    return section;
}
