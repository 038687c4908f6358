// The tasks of one array in a list of jobs, as one entry.

import { stateLevel, stateText } from "./job_text.js";

/** Returns the entries of a list: jobs, and arrays with several tasks in the place of their first one. */
export function foldArrays(jobs) {
    const arrays = new Map();
    const entries = [];
    for (const job of jobs) {
        const [, id] = /^(\d+)_\d+$/.exec(job.display_id ?? "") ?? [];
        const key = id && JSON.stringify([id, job.cluster, job.uid]);
        if (key && arrays.has(key)) {
            arrays.get(key).jobs.push(job);
            continue;
        }
        const entry = { id, key: key ?? String(job.key), jobs: [job] };
        if (key) arrays.set(key, entry);
        entries.push(entry);
    }
    return entries;
}

/** The order of the levels of states: what is wrong comes first, since a narrow cell has no room for more. */
const LEVELS = ["critical", "warning", ""];

/** Returns the number of jobs in each state in words, the worst state first. */
export function statesText(jobs) {
    const counts = new Map();
    for (const job of jobs.toSorted((one, other) => LEVELS.indexOf(stateLevel(one)) - LEVELS.indexOf(stateLevel(other)))) {
        const state = job.ended_us === null ? stateText(job) : job.state ?? "ended";
        counts.set(state, (counts.get(state) ?? 0) + 1);
    }
    return [...counts].map(([state, count]) => `${count} ${state}`).join(", ");
}
