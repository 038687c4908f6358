// The newest value of each series of a stream, and the values of quantities at an instant.

import { summed } from "./summed.js";

/** A value is out of date after so many periods. */
const PERIODS = 3;
/** The period of a series whose period is unknown, in microseconds. */
const USUAL_PERIOD_US = 1e6;
/** Time for which a value may be under way, in microseconds. */
const DELAY_US = 3e6;

const keyOf = (metric, level) => `${metric} ${level ?? ""}`;

/** Returns the ids of the summed series by metric and level. */
function summedByMetric(all) {
    const found = new Map();
    for (const { id, metric, labels } of summed(all)) {
        const key = keyOf(metric, labels.task ? "task" : labels.step ? "step" : null);
        if (!found.has(key)) found.set(key, []);
        found.get(key).push(id);
    }
    return found;
}

/** Creates the collection of newest values. */
export function liveValues() {
    const series = new Map();
    let byMetric = null;
    const newest = new Map();
    let latest_us = 0;
    return {
        describe: (list) => list.forEach((one) => {
            series.set(one.id, one);
            byMetric = null;
        }),
        /** Adds the columns of an event, and returns the time of the newest value. */
        add: ({ id, time_us, value, min, mean, max }) => {
            id.forEach((of, row) => {
                const middle = mean?.[row] ?? value[row];
                if (!series.has(of) || middle === null || middle === undefined) return;
                newest.set(of, { time_us: time_us[row], values: [min?.[row] ?? middle, middle, max?.[row] ?? middle] });
                latest_us = Math.max(latest_us, time_us[row]);
            });
            return latest_us;
        },
        /** Returns min, mean and max of a quantity on each node; null where no value is recent. */
        at: (quantity, nodes) => {
            const sums = new Map(nodes.map((node) => [node, { values: [null, null, null], count: 0 }]));
            for (const { metric, level, factor } of quantity.terms) {
                byMetric ??= summedByMetric([...series.values()]);
                for (const id of byMetric.get(keyOf(metric, level)) ?? []) {
                    const of = series.get(id);
                    const last = newest.get(id);
                    const sum = sums.get(of.node);
                    if (!last || !sum || latest_us - last.time_us > PERIODS * (of.period_us ?? USUAL_PERIOD_US) + DELAY_US) continue;
                    sum.count += 1;
                    sum.values = sum.values.map((value, line) => (value ?? 0) + factor * last.values[factor < 0 ? 2 - line : line]);
                }
            }
            return nodes.map((node) => {
                const { values, count } = sums.get(node);
                return values.map((value) => (value === null ? null : quantity.isMean ? value / count : value));
            });
        },
    };
}
