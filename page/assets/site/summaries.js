// Meters and findings of the jobs of a list. Those of an ended job are asked for once.

import { get } from "./api.js";
import { limited } from "./queue.js";

const LONGEST_S = 60;
const kept = new Map();
const turn = limited(2);

/** Returns the meters and findings of a job. Those of a running job may be up to a minute old. */
export function summaryOf(job) {
    const known = kept.get(job.key);
    const isOver = job.ended_us !== null;
    if (known && known.isOver === isOver && (isOver || performance.now() - known.at < LONGEST_S * 1000)) return known.summary;
    const summary = turn(() => get(`jobs/${job.key}/summary`, { members: "list" }));
    kept.set(job.key, { summary, isOver, at: performance.now() });
    summary.catch(() => kept.delete(job.key));
    return summary;
}
