// The sampling plan of a job as rows of a table: one for each metric and level, over all nodes.

import { periodText, periodUs } from "./periods.js";

const distinct = (values) => [...new Set(values.filter((value) => value !== null && value !== undefined && value !== ""))];

/** Counts the series of each metric by level. */
function countSeries(series) {
    const counts = new Map();
    for (const { metric, labels } of series) {
        const key = `${metric} ${labels.task ? "task" : labels.step ? "step" : ""}`;
        counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    return counts;
}

function row(metric, level, lines, counts) {
    const periods = distinct(lines.map((line) => line.period));
    const us = Math.min(...periods.map((period) => periodUs(period) ?? Infinity));
    const series = counts.get(`${metric} ${level}`) ?? lines.length;
    const causes = lines.map((line) => `${line.cause}${line.actor ? ` of ${line.actor}` : ""}`);
    return {
        metric, level, us, periods,
        rate: Number.isFinite(us) && us > 0 ? (series * 1e6) / us : 0,
        causes: distinct(causes),
        reasons: distinct(lines.map((line) => line.reason)),
        until_us: lines.reduce((latest, line) => Math.max(latest, line.until_us ?? 0), 0) || null,
    };
}

function rows(lines, series) {
    const counts = countSeries(series);
    const groups = new Map();
    for (const line of lines) {
        const key = `${line.metric} ${line.level ?? ""}`;
        if (!groups.has(key)) groups.set(key, []);
        groups.get(key).push(line);
    }
    const found = [...groups.values()].map((group) => row(group[0].metric, group[0].level ?? "", group, counts));
    return found.sort((one, other) => (one.metric < other.metric ? -1 : one.metric > other.metric ? 1 : one.level.localeCompare(other.level)));
}

/** Returns the rows of the plan that the agents of a running job report. */
export function rowsOfPlan(answer, series) {
    return rows(answer.nodes.flatMap(({ answer: of }) => of?.plan ?? []), series);
}

/** Returns the rows of the last plan of an ended job, from the changes of its plan. */
export function rowsOfChanges(changes, series) {
    const last = new Map();
    for (const change of changes) {
        if (change.new_period_us === null) continue;
        last.set(JSON.stringify([change.node, change.metric, change.level ?? ""]), {
            metric: change.metric, level: change.level ?? "", period: periodText(change.new_period_us), cause: change.cause, actor: change.actor,
        });
    }
    return rows([...last.values()], series);
}

/** Returns what the nodes of a job cannot sample, with the reasons. */
export function unavailableOf(answer) {
    return distinct(answer.nodes.flatMap(({ answer: of }) => (of?.unavailable ?? []).map(([metric, reason]) => `${metric}: ${reason}`)));
}
