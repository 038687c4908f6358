// The section of a job page about its sampling: the metrics with their periods, and changes to them.

import { element } from "../shared/text.js";
import { get } from "./api.js";
import { metricTable } from "./metric_table.js";
import { rowsOfChanges, rowsOfPlan, unavailableOf } from "./plan_rows.js";
import { rateControl } from "./rate_control.js";

/** Creates the section. */
export function samplingSection(job, mayControl) {
    const isRunning = job.ended_us === null;
    const remark = element("div");
    const control = isRunning && mayControl ? rateControl(job, async () => { await place.load(); table.settle(); }) : null;
    const table = metricTable(control?.change);
    const place = element("section", {}, element("h2", { id: "sampling" }, isRunning ? "Sampling" : "Last periods"));
    place.setAttribute("aria-labelledby", "sampling");
    if (control) place.append(control);
    place.append(table, remark);
    let series = [];

    const lines = (texts) => texts.map((text) => element("p", { className: "remark" }, text));
    place.load = async () => {
        if (!isRunning) {
            table.show(rowsOfChanges((await get(`jobs/${job.key}/plan-changes`)).plan_changes, series));
            return;
        }
        try {
            const answer = await get(`jobs/${job.key}/plan`);
            const silent = answer.nodes.filter(({ answer: of }) => !of).map(({ node }) => node);
            table.show(rowsOfPlan(answer, series));
            remark.replaceChildren(...lines(unavailableOf(answer).slice(0, 20).map((text) => `Not available: ${text}`)),
                ...lines(silent.length > 0 ? [`No answer from ${silent.join(", ")}.`] : []));
        } catch (error) {
            // The plan of a job whose agents are not connected is unknown.
            remark.replaceChildren(...lines([`The present plan is unknown: ${error.message}.`]));
        }
    };
    /** Sets the series of the job, from which the cost of its metrics follows. */
    place.describe = (all) => { series = all; };
    return place;
}
