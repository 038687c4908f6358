// The health of an agent: its problems, from the row of the API.

import { dateText, duration, plainNumber, threeDigits } from "../shared/text.js";

/** An agent without data sends an empty frame after 30 s. */
const SILENT_S = 90;
/** A delay that buffers do not explain. */
const DELAY_MAX_S = 60;
/** Offsets of the clock that are a problem: samples of nodes can no longer be compared, and requests are refused. */
const CLOCK_S = [0.1, 10];
/** The share of samples above which a count is a problem. */
const SHARES = [0.001, 0.01];

export const LEVELS = ["critical", "warning", "note", "good"];

/** Returns the level of a count of samples: the empty text for none. */
export function levelOfCount(count, due) {
    const share = due > 0 ? count / due : count > 0 ? 1 : 0;
    return share >= SHARES[1] ? "critical" : share >= SHARES[0] ? "warning" : "";
}

/** Formats a count, with its share of the samples that were due if that is a problem. */
export function countText(count, due) {
    return due > 0 && levelOfCount(count, due) ? `${plainNumber(count)} (${threeDigits((count / due) * 100)} %)` : plainNumber(count);
}

/** Formats the offset of an agent's clock, its error and its age. A positive one is ahead of the collector's clock. */
export function offsetText(agent, now_us) {
    if (agent.clock_offset_us === null) return "not measured";
    const offset = duration(Math.abs(agent.clock_offset_us) / 1e6);
    const sign = agent.clock_offset_us < 0 ? "−" : "+";
    const age = Math.max(Math.round((now_us - agent.clock_measured_us) / 1e6), 0);
    return `${sign}${offset} ± ${duration(agent.clock_error_us / 1e6)}, ${duration(age)} ago`;
}

/** Returns the time from the newest sample to its arrival, in seconds, without the offset of the clock if that is known; null before the first sample. */
export function delayS(agent) {
    return agent.delay_us === null ? null : (agent.delay_us + (agent.clock_offset_us ?? 0)) / 1e6;
}

function clockProblems(agent) {
    if (agent.clock_offset_us !== null) {
        // The offset is at least this, whatever the error.
        const least_s = (Math.abs(agent.clock_offset_us) - agent.clock_error_us) / 1e6;
        if (least_s < CLOCK_S[0]) return [];
        const direction = agent.clock_offset_us > 0 ? "ahead" : "behind";
        return [{ kind: "clock", level: least_s >= CLOCK_S[1] ? "critical" : "warning", text: `clock ${direction} by ${duration(Math.abs(agent.clock_offset_us) / 1e6)}` }];
    }
    // A sample cannot arrive before it is taken. A late one may have waited, so that nothing follows from it.
    const delay_s = delayS(agent);
    return delay_s !== null && delay_s < -CLOCK_S[0]
        ? [{ kind: "clock", level: "warning", text: `clock ahead by at least ${duration(-delay_s)}` }]
        : [];
}

/** Returns the problems of an agent, the most severe one first. */
export function problemsOf(agent, now_us, version) {
    const problems = clockProblems(agent);
    const silent_s = (now_us - agent.last_seen_us) / 1e6;
    const isOver = agent.ended_us !== null;
    if (isOver) {
        const reason = agent.end_reason === "stopped" ? "" : `: ${agent.end_reason ?? "reason unknown"}`;
        problems.push({ kind: "stopped", level: "warning", text: `stopped ${duration(Math.round(silent_s))} ago${reason}` });
    }
    else if (silent_s > SILENT_S) problems.push({ kind: "silent", level: "critical", text: `silent for ${duration(Math.round(silent_s))}` });
    const delay_s = delayS(agent);
    if (!isOver && delay_s !== null && delay_s > DELAY_MAX_S) {
        const cause = agent.clock_offset_us === null ? ", or its clock is behind" : "";
        problems.push({ kind: "delay", level: "warning", text: `samples arrive after ${duration(delay_s)}${cause}` });
    }
    for (const kind of ["lost", "missed", "late"]) {
        const level = levelOfCount(agent[kind], agent.due);
        if (level) problems.push({ kind, level, text: `${countText(agent[kind], agent.due)} ${kind}` });
    }
    if (agent.version !== version) problems.push({ kind: "version", level: "note", text: `version ${agent.version}, the collector has ${version}` });
    return problems.sort((one, other) => LEVELS.indexOf(one.level) - LEVELS.indexOf(other.level));
}

/** Returns the state of a node's agent as a sentence. `found` is its entry among the connected agents, and `agent` its row, which administrators have. */
export function agentText(agent, now_us, found) {
    if (!agent) return found ? `Agent connected since ${dateText(found.started_us / 1e6)}.` : "No connected agent, or no job of yours runs there now.";
    const problems = problemsOf(agent, now_us, agent.version).map((problem) => problem.text);
    const state = agent.is_connected ? "connected" : agent.ended_us !== null ? "stopped" : "not connected to this collector";
    const clock = agent.clock_offset_us === null ? "clock not measured" : `clock ${offsetText(agent, now_us)}`;
    const told = problems.length > 0 ? `; ${problems.join("; ")}` : "";
    return `Agent ${agent.version}, ${state}, session since ${dateText(agent.started_us / 1e6)}; ${clock}${told}.`;
}
