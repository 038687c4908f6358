// The panel of a job page about its sampling: the metrics with their periods, and changes to them.

import { element } from "../shared/text.js";
import { get } from "./api.js";
import { metricTable } from "./metric_table.js";
import { rowsOf } from "./plan_rows.js";
import { rateControl } from "./rate_control.js";
import { reasonList } from "./reasons.js";

/** Creates the panel. */
export function samplingPanel(job, mayControl) {
    const isRunning = job.ended_us === null;
    const remark = element("div");
    const control = isRunning && mayControl ? rateControl(job, async () => { await place.load(); table.settle(); }) : null;
    const table = metricTable(isRunning, control?.change);
    const place = element("div", {}, element("h2", {}, isRunning ? "Sampling" : "Last periods"));
    if (control) place.append(control);
    place.append(table, remark);
    let metrics = [];

    const lines = (texts) => texts.map((text) => element("p", { className: "remark" }, text));
    place.load = async () => {
        try {
            const answer = await get(`jobs/${job.key}/sampling`);
            table.show(rowsOf(answer, metrics));
            const others = answer.silent - answer.silent_nodes.length;
            const silent = `No answer from ${answer.silent_nodes.join(", ")}${others > 0 ? ` and ${others} more` : ""}.`;
            remark.replaceChildren(...reasonList(answer.unavailable), ...lines(answer.silent > 0 ? [silent] : []));
        } catch (error) {
            // The plan of a job whose agents are not connected is unknown.
            remark.replaceChildren(...lines([`The present plan is unknown: ${error.message}.`]));
        }
    };
    /** Sets the metrics of the job, with the numbers of their series, from which their cost follows. */
    place.describe = (all) => { metrics = all; };
    return place;
}
