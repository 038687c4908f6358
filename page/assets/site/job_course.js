// The values of a quantity over the nodes of a job, as the server computes them: the answer does not grow with the number of nodes.

import { get } from "./api.js";

/** Loads a quantity in the times of a request, in the form of `loadCourse`. `means` are those of `rows`, if they are wanted. The server chooses the number of points. */
export async function loadJobCourse(subject, quantity, times, { signal, hasRows }) {
    // Important quantities are other metrics.
    const chosen = quantity.is_main ? { quantity: quantity.id } : { metric: quantity.terms.map(({ metric }) => metric).join(",") };
    const answer = await get(subject.course, { ...chosen, ...times, rows: hasRows ? null : "none" }, signal);
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
        rows: hasRows ? answer.rows : null,
        highest: answer.highest,
        lowest: answer.lowest,
        extent: { min: answer.min, mean: answer.mean, max: answer.max },
        isRaw,
        distance: answer.distance,
    };
}
