// The tasks of one array in a list of jobs, as one entry.

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

/** Returns the number of jobs in each state in words, that of the most jobs first. */
export function statesText(states) {
    const counts = new Map();
    for (const state of states) counts.set(state, (counts.get(state) ?? 0) + 1);
    return [...counts].sort((one, other) => other[1] - one[1]).map(([state, count]) => `${count} ${state}`).join(", ");
}
