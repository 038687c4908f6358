// The values of a quantity over a part of a job's time, from the API.

import { get } from "./api.js";
import { addColumns, columnsOf, countOf, extentOf, linesOf } from "./columns.js";
import { loadJobCourse } from "./job_course.js";
import { limited } from "./queue.js";

/** Parts of the time of one chart, and of all nodes together. */
const POINTS = [100, 600];
const ALL_POINTS = 100_000;

/** Requests at once, of those that the API grants a user. */
const turn = limited(3);

/** Returns the sums of a quantity's series by node. */
function sumByNode(answer, quantity, nodes) {
    const count = countOf(answer);
    const sums = new Map(nodes.map((node) => [node, { lines: [0, 1, 2].map(() => new Array(count).fill(null)), series: 0 }]));
    let distance = Infinity;
    for (const series of answer.series) {
        const sum = sums.get(series.node);
        if (!sum) continue;
        const found = columnsOf(series, answer);
        distance = Math.min(distance, found.distance);
        addColumns(sum.lines, found.columns, quantity.factors.get(series.id) ?? 0);
        sum.series += 1;
    }
    const hasDifference = [...quantity.factors.values()].some((factor) => factor < 0);
    for (const { lines, series } of sums.values()) {
        const share = quantity.isMean && series > 1 ? 1 / series : 1;
        for (const line of lines) {
            for (let part = 0; part < count; part += 1) {
                if (line[part] === null) continue;
                line[part] = hasDifference ? Math.max(line[part] * share, 0) : line[part] * share;
            }
        }
    }
    return { byNode: nodes.map((node) => sums.get(node).lines), distance };
}

/**
 * Loads a quantity of a job: in parts of the time from `begin_s` until `end_s` after the start, or of the whole time without them. Returns the
 * times of the parts, the lines of a chart, the means by node, and the end of the time.
 */
export async function loadCourse(job, quantity, nodes, range, signal) {
    const points = Math.min(Math.max(Math.floor(ALL_POINTS / Math.max(nodes.length, 1)), POINTS[0]), POINTS[1]);
    const us = (seconds) => Math.max(Math.round(job.started_us + seconds * 1e6), 0);
    const times = range ? { from_us: us(range[0]), until_us: Math.max(us(range[1]), us(range[0]) + 1) } : {};
    if (quantity.terms) {
        return turn(() => {
            signal?.throwIfAborted();
            return loadJobCourse(job, quantity, nodes, times, signal);
        });
    }
    const parameters = { series: [...quantity.factors.keys()].join(","), points, ...times };
    const answer = await turn(() => {
        signal?.throwIfAborted();
        return get(`jobs/${job.key}/samples`, parameters, signal);
    });
    const begin_s = (answer.from_us - job.started_us) / 1e6;
    const { byNode, distance } = sumByNode(answer, quantity, nodes);
    const count = countOf(answer);
    return {
        begin_s,
        end_s: begin_s + count * answer.part_s,
        part_s: answer.part_s,
        until_s: (answer.until_us - job.started_us) / 1e6,
        // Parts that are longer than the time between samples have their value in the middle.
        times: Array.from({ length: count }, (_, part) => begin_s + (part + (distance > 1 ? 0 : 0.5)) * answer.part_s),
        lines: linesOf(byNode),
        means: byNode.map((lines) => lines[1]),
        extent: extentOf(byNode),
        isRaw: distance > 1,
    };
}
