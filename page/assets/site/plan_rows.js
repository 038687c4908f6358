// The sampling of a job as rows of a table: one for each metric and level, over all nodes.

import { periodUs } from "./periods.js";

/** Returns the rows of an answer about the sampling of a job, with the cost that follows from the numbers of series. */
export function rowsOf(answer, metrics) {
    const counts = new Map(metrics.map(({ metric, level, series }) => [`${metric} ${level ?? ""}`, series]));
    return answer.metrics.map((row) => {
        const level = row.level ?? "";
        const us = Math.min(...row.periods.map((period) => periodUs(period) ?? Infinity));
        const series = counts.get(`${row.metric} ${level}`) ?? 1;
        return { ...row, level, us, rate: Number.isFinite(us) && us > 0 ? (series * 1e6) / us : 0 };
    });
}
