// The values of a quantity over a part of the time of a job or a node, from the API.

import { get } from "./api.js";
import { addColumns, columnsOf, countOf, extentOf, holdOn, keepHighest, keepWhere, linesOf } from "./columns.js";
import { loadJobCourse } from "./job_course.js";
import { limited } from "./queue.js";

/** Parts of the time of one chart, and of all nodes together. */
const POINTS = [100, 600];
const ALL_POINTS = 100_000;

/** Requests at once, of those that the API grants a user. */
const turn = limited(3);

/** Returns the values of a quantity by node: the sum, the mean or the highest of its series. */
function valuesByNode(answer, quantity, nodes) {
    const count = countOf(answer);
    const empty = () => ({ lines: [0, 1, 2].map(() => new Array(count).fill(null)), isThere: new Array(count).fill(false), isWhole: new Array(count).fill(false), series: 0 });
    const hasDifference = [...quantity.factors.values()].some((factor) => factor < 0);
    const sums = new Map(nodes.map((node) => [node, empty()]));
    let distance = Infinity;
    for (const series of answer.series) {
        const sum = sums.get(series.node);
        if (!sum) continue;
        const found = columnsOf(series, answer);
        const factor = quantity.factors.get(series.id) ?? 0;
        distance = Math.min(distance, found.distance);
        found.columns[1].forEach((value, part) => { if (value !== null) sum.isThere[part] = true; });
        // What is subtracted may be sampled more often than that from which it is, as the used memory of a node.
        const columns = hasDifference ? holdOn(found.columns) : found.columns;
        if (factor > 0) columns[1].forEach((value, part) => { if (value !== null) sum.isWhole[part] = true; });
        if (quantity.isHighest) keepHighest(sum.lines, columns);
        else addColumns(sum.lines, columns, factor);
        sum.series += 1;
    }
    for (const { lines, isThere, isWhole, series } of sums.values()) {
        if (hasDifference) keepWhere(lines, isThere.map((there, part) => there && isWhole[part]));
        const share = quantity.isMean && !quantity.isHighest && series > 1 ? 1 / series : 1;
        for (const line of lines) {
            for (let part = 0; part < count; part += 1) {
                if (line[part] === null) continue;
                line[part] = hasDifference ? Math.max(line[part] * share, 0) : line[part] * share;
            }
        }
    }
    return { byNode: nodes.map((node) => sums.get(node).lines), distance };
}

/** Returns the subject of the charts of a job. */
export function jobSubject(job) {
    return { path: `jobs/${job.key}/samples`, course: `jobs/${job.key}/course`, started_us: job.started_us, ended_us: job.ended_us, whole: () => ({}) };
}

/** Returns the subject of the charts of a node, from a time on until now. */
export function nodeSubject(node, started_us) {
    const whole = () => ({ from_us: started_us, until_us: Math.max(Date.now() * 1000, started_us + 1e6) });
    return { path: `nodes/${encodeURIComponent(node)}/samples`, started_us, ended_us: null, whole };
}

/**
 * Loads a quantity of a subject, which is a job or a node: in parts of the time from `begin_s` until `end_s` after the start, or of the whole time without
 * them. Returns the times of the parts, the lines of a chart, the means by node, and the end of the time. `quantity.query` has further parameters.
 * With `hasRows`, a job's means are those of `rows`; without, there may be none.
 */
export async function loadCourse(subject, quantity, nodes, range, { signal, hasRows = true } = {}) {
    const points = Math.min(Math.max(Math.floor(ALL_POINTS / Math.max(nodes.length, 1)), POINTS[0]), POINTS[1]);
    const us = (seconds) => Math.max(Math.round(subject.started_us + seconds * 1e6), 0);
    const times = range ? { from_us: us(range[0]), until_us: Math.max(us(range[1]), us(range[0]) + 1) } : subject.whole();
    if (quantity.terms) {
        return turn(() => {
            signal?.throwIfAborted();
            return loadJobCourse(subject, quantity, times, { signal, hasRows });
        });
    }
    const parameters = { ...quantity.query, series: [...quantity.factors.keys()].join(","), points, ...times };
    const answer = await turn(() => {
        signal?.throwIfAborted();
        return get(subject.path, parameters, signal);
    });
    const begin_s = (answer.from_us - subject.started_us) / 1e6;
    const { byNode, distance } = valuesByNode(answer, quantity, nodes);
    const count = countOf(answer);
    return {
        begin_s,
        end_s: begin_s + count * answer.part_s,
        part_s: answer.part_s,
        until_s: (answer.until_us - subject.started_us) / 1e6,
        // Parts that are longer than the time between samples have their value in the middle.
        times: Array.from({ length: count }, (_, part) => begin_s + (part + (distance > 1 ? 0 : 0.5)) * answer.part_s),
        lines: linesOf(byNode),
        means: byNode.map((lines) => lines[1]),
        extent: extentOf(byNode),
        isRaw: distance > 1,
        distance,
    };
}
