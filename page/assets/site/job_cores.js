// The cores in use of the jobs of a list: one request for all that are listed at a time.

import { get } from "./api.js";

const LONGEST_S = 60;
/** Jobs of one request. */
const KEYS_MAX = 100;
/** The time in which the rows of all lists ask, in milliseconds. */
const GATHERED_MS = 30;

const kept = new Map();
let wanted = new Map();
let timer = null;

async function ask() {
    const asked = [...wanted];
    wanted = new Map();
    timer = null;
    for (let first = 0; first < asked.length; first += KEYS_MAX) {
        const part = asked.slice(first, first + KEYS_MAX);
        try {
            const { jobs } = await get("job-cores", { key: part.map(([key]) => key).join(",") });
            const found = new Map(jobs.map((job) => [job.key, job]));
            for (const [key, { done }] of part) done(found.get(key) ?? null);
        } catch (error) {
            for (const [key, { failed }] of part) {
                kept.delete(key);
                failed(error);
            }
        }
    }
}

/** Returns the cores of a job: those of an ended job are asked for once, those of a running one may be up to a minute old. */
export function coresOf({ key, ended_us }) {
    const isOver = ended_us !== null;
    const known = kept.get(key);
    if (known && known.isOver === isOver && (isOver || performance.now() - known.at < LONGEST_S * 1000)) return known.cores;
    const cores = new Promise((done, failed) => { wanted.set(key, { done, failed }); });
    kept.set(key, { cores, isOver, at: performance.now() });
    timer ??= setTimeout(ask, GATHERED_MS);
    return cores;
}
