// Facts about a job as text.

import { dateText, duration } from "../shared/text.js";

/** Returns the id of a job as its user knows it. */
export function idText(job) {
    return job.display_id ?? job.id;
}

export function ownerText(job) {
    return job.user ?? (job.uid === null ? "–" : `uid ${job.uid}`);
}

/** Returns the address of the trend of the runs that have the name and the owner of a job. */
export function trendLink(job) {
    const user = job.uid ?? job.user;
    return `trend?${new URLSearchParams({ name: job.name, ...(user === null ? {} : { user }) })}`;
}

/** Returns the seconds since the start of a job, or until its end. */
export function elapsedS(job) {
    return Math.max((job.ended_us ?? Date.now() * 1000) - job.started_us, 0) / 1e6;
}

export function elapsedText(job) {
    const limit = job.time_limit_s ? ` of ${duration(job.time_limit_s)}` : "";
    return `${duration(Math.round(elapsedS(job)))}${limit}`;
}

/** Returns the time of the start, without the date if that is today. */
export function startText(job) {
    const text = dateText(job.started_us / 1e6);
    const [day, time] = text.split(" ");
    return day === dateText(Date.now() / 1000).split(" ")[0] ? time : text.slice(5, 16);
}

/** Final states that say why the job ended: the exit status or signal that comes with them adds nothing. */
const CAUSES = ["BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"];

export function stateText(job) {
    if (job.ended_us === null) return job.lost_nodes.length > 0 ? "agent lost" : "running";
    const exit = CAUSES.includes(job.state) ? "" : job.exit_signal ? `, signal ${job.exit_signal}` : job.exit_code ? `, exit ${job.exit_code}` : "";
    return `${job.state ?? "ended"}${exit}`;
}

/** Final states that are the fault of the job or of its node, and those that are its user's choice or a limit. */
const BAD = ["FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "ERROR"];
const DOUBTFUL = ["TIMEOUT", "CANCELLED", "DEADLINE", "PREEMPTED"];

/** Returns the level of a job's state: the empty text if there is nothing wrong. */
export function stateLevel(job) {
    const state = (job.state ?? "").toUpperCase();
    if (BAD.some((known) => state.startsWith(known))) return "critical";
    return DOUBTFUL.some((known) => state.startsWith(known)) || job.lost_nodes.length > 0 ? "warning" : "";
}

/** Returns the name of the only node, or the number of nodes. */
export function nodesText(job) {
    return job.nodes.length === 1 ? job.nodes[0] : `${job.nodes.length} nodes`;
}
