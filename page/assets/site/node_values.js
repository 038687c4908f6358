// The present use of nodes by jobs, from the newest samples.

import { get } from "./api.js";
import { limited } from "./queue.js";

/** Jobs whose samples are read: a bound on the requests of one page. */
const JOBS_MAX = 40;
/** Seconds of samples that are read. Rollups of a minute are not complete yet. */
const WINDOW_S = 50;

/** The quantities of a node: each is a sum over its jobs. */
export const NODE_QUANTITIES = [
    { id: "cores", title: "Cores in use", unit: "cores", metrics: ["cpu.usage"] },
    { id: "memory", title: "Memory in use", unit: "bytes", metrics: ["memory.anon", "memory.shmem"] },
    { id: "jobs", title: "Jobs", unit: "count", metrics: [] },
];

const turn = limited(2);

/** Adds the mean of each series of a job without steps and tasks to the values of its node. */
function add(values, answer) {
    for (const series of answer.series) {
        const quantity = NODE_QUANTITIES.find((one) => one.metrics.includes(series.metric));
        const node = values.get(series.node);
        const mean = series.mean?.[series.mean.length - 1];
        if (!quantity || !node || series.labels.step || series.labels.task || mean === null || mean === undefined) continue;
        node[quantity.id] = (node[quantity.id] ?? 0) + mean;
    }
}

/** Adds what running jobs requested on their nodes: the capacity to which the map is scaled. */
function addRequests(values, running) {
    for (const job of running) {
        for (const name of job.nodes) {
            const node = values.get(name);
            if (!node) continue;
            const cores = job.cores === null ? null : job.cores / job.nodes.length;
            node.requested.cores += cores ?? 0;
            node.requested.memory += job.memory_bytes ?? 0;
        }
    }
}

/** Returns the values of the nodes by name, with what was requested there. */
export async function nodeValues(nodes, running) {
    const values = new Map(nodes.map((node) => [node.node, { jobs: node.jobs.length, requested: { cores: 0, memory: 0, jobs: 0 } }]));
    addRequests(values, running);
    const metric = NODE_QUANTITIES.flatMap((quantity) => quantity.metrics).join(",");
    const until = Date.now() * 1000;
    const parameters = { metric, points: 1, from_us: until - WINDOW_S * 1e6, until_us: until };
    await Promise.all(running.slice(0, JOBS_MAX).map(async (job) => {
        // The values of other jobs are shown if one has ended meanwhile.
        const answer = await turn(() => get(`jobs/${job.key}/samples`, parameters)).catch(() => ({ series: [] }));
        add(values, answer);
    }));
    return values;
}
