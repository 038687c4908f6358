// The values of a quantity over a part of a job's time, from the API.

import { get } from "./api.js";
import { ROWS_MAX } from "./heat_rows.js";
import { limited } from "./queue.js";

/** Parts of the time of one chart, and of all rows of a heat map together. */
const POINTS = [100, 600];
const CELLS = 30_000;

/** Requests at once, of those that the API grants a user. */
const turn = limited(3);

/**
 * Loads a quantity of a job: in parts of the time from `begin_s` until `end_s` after the start, or of the whole time without them. Returns the
 * times of the parts, the lines of a chart, the means by row of the heat map, and the end of the time.
 */
export async function loadCourse(job, quantity, nodes, range, signal) {
    const rows = Math.min(Math.max(nodes.length, 1), ROWS_MAX);
    const points = Math.min(Math.max(Math.floor(CELLS / rows), POINTS[0]), POINTS[1]);
    const us = (seconds) => Math.max(Math.round(job.started_us + seconds * 1e6), 0);
    const times = range ? { from_us: us(range[0]), until_us: Math.max(us(range[1]), us(range[0]) + 1) } : {};
    const metrics = (sign) => quantity.terms.filter(({ factor }) => factor === sign).map(({ metric }) => metric).join(",");
    const parameters = { metric: metrics(1), minus: metrics(-1), node: nodes.length === 1 ? nodes[0] : null, points, ...times };
    const answer = await turn(() => {
        signal?.throwIfAborted();
        return get(`jobs/${job.key}/course`, parameters, signal);
    });
    const begin_s = (answer.from_us - job.started_us) / 1e6;
    const count = answer.middle.length;
    const isRaw = answer.distance > 1;
    return {
        begin_s,
        end_s: begin_s + count * answer.part_s,
        part_s: answer.part_s,
        until_s: (answer.until_us - job.started_us) / 1e6,
        // Parts that are longer than the time between samples have their value in the middle.
        times: Array.from({ length: count }, (_, part) => begin_s + (part + (isRaw ? 0 : 0.5)) * answer.part_s),
        lines: [answer.low, answer.middle, answer.high],
        rows: answer.rows,
        means: answer.means,
        highest: answer.highest,
        lowest: answer.lowest,
        extent: { min: answer.min, mean: answer.mean, max: answer.max },
        isRaw,
    };
}
