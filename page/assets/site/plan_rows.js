// The sampling of a job as rows of a table: one for each metric and level, over all nodes.

import { hasHistogram, periodUs, rowUs } from "./periods.js";

/** Returns the rows of an answer about the sampling of a job, with the cost that follows from the numbers of series. */
export function rowsOf(answer, metrics) {
    const counts = new Map(metrics.map(({ metric, level, series }) => [`${metric} ${level ?? ""}`, series]));
    return answer.metrics.map((row) => {
        const level = row.level ?? "";
        const us = Math.min(...row.periods.map((period) => periodUs(period) ?? Infinity));
        const rowsUs = Math.min(...row.periods.map((period) => rowUs(period) ?? Infinity));
        const windowUs = rowsUs > us ? rowsUs : null;
        const series = counts.get(`${row.metric} ${level}`) ?? 1;
        const isHistogram = row.periods.some(hasHistogram);
        return { ...row, level, us, windowUs, isHistogram, rate: Number.isFinite(rowsUs) && rowsUs > 0 ? (series * 1e6) / rowsUs : 0 };
    });
}
