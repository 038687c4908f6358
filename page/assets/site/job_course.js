// The values of a quantity over the nodes of a job, as the server computes them: the answer does not grow with the number of nodes.

import { get } from "./api.js";
import { ROWS_MAX } from "./heat_rows.js";

/** Parts of the time of one chart, and of all rows of a heat map together. */
const POINTS = [100, 600];
const CELLS = 30_000;

/** Loads a quantity in the times of a request, in the form of `loadCourse`. `means` are those of `rows`. */
export async function loadJobCourse(subject, quantity, nodes, times, signal) {
    const rows = Math.min(Math.max(nodes.length, 1), ROWS_MAX);
    const points = Math.min(Math.max(Math.floor(CELLS / rows), POINTS[0]), POINTS[1]);
    const metrics = (sign) => quantity.terms.filter(({ factor }) => factor === sign).map(({ metric }) => metric).join(",");
    const answer = await get(subject.course, { metric: metrics(1), minus: metrics(-1), points, ...times }, signal);
    const begin_s = (answer.from_us - subject.started_us) / 1e6;
    const count = answer.middle.length;
    const isRaw = answer.distance > 1;
    return {
        begin_s,
        end_s: begin_s + count * answer.part_s,
        part_s: answer.part_s,
        until_s: (answer.until_us - subject.started_us) / 1e6,
        // Parts that are longer than the time between samples have their value in the middle.
        times: Array.from({ length: count }, (_, part) => begin_s + (part + (isRaw ? 0 : 0.5)) * answer.part_s),
        lines: [answer.low, answer.middle, answer.high],
        means: answer.means,
        rows: answer.rows,
        highest: answer.highest,
        lowest: answer.lowest,
        extent: { min: answer.min, mean: answer.mean, max: answer.max },
        isRaw,
    };
}
