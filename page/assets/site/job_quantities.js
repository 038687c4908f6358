// The quantities of a job or a node that are drawn, and the series from which they are computed.

import { unitText } from "../shared/text.js";
import { QUANTITIES } from "./quantities.js";
import { summed } from "./summed.js";

/** Units whose values are not added up over the series of a node. */
const MEANS = ["percent", "celsius"];

const levelOf = (series) => (series.labels.task ? 2 : series.labels.step ? 1 : 0);

/** Returns the summed series by metric. Those of steps and tasks are contained in those of the job: they count only for a metric without the latter. */
function seriesByMetric(every) {
    const all = summed(every);
    const levels = new Map();
    for (const series of all) levels.set(series.metric, Math.min(levels.get(series.metric) ?? 2, levelOf(series)));
    const found = new Map();
    for (const series of all.filter((one) => levelOf(one) === levels.get(one.metric))) {
        if (!found.has(series.metric)) found.set(series.metric, []);
        found.get(series.metric).push(series);
    }
    return found;
}

function quantity(base, terms, choice = {}) {
    const first = terms[0].series[0];
    const unit = choice.unit ?? first.rate_unit ?? first.unit;
    const factors = new Map();
    for (const { series, factor } of terms) for (const one of series) factors.set(one.id, factor);
    return { ...base, unit, unitText: unitText(unit), factors, isMean: MEANS.includes(unit), isHighest: choice.isHighest === true };
}

/** Returns the terms of the first choice of which there are series, with the choice. */
function termsOf(choices, found) {
    for (const choice of choices) {
        if (![choice.metric, ...(choice.needs ?? [])].every((metric) => found.has(metric))) continue;
        const factor = choice.factor ?? 1;
        const terms = [[[choice.metric, ...choice.plus], factor], [choice.minus, -factor]].flatMap(([metrics, sign]) =>
            metrics.filter((metric) => found.has(metric)).map((metric) => ({ series: found.get(metric), factor: sign })));
        return { choice, terms };
    }
    return null;
}

/**
 * Returns the quantities of series: those of `wanted` first, then all other metrics by name. They are those of a job without `wanted`.
 */
export function quantitiesOf(all, wanted = QUANTITIES) {
    const found = seriesByMetric(all);
    const drawn = new Set();
    const quantities = [];
    for (const { id, choices } of wanted) {
        const known = termsOf(choices, found);
        if (!known) continue;
        const { choice, terms } = known;
        if (terms.length === 1 && !choice.isHighest) drawn.add(choice.metric);
        quantities.push(quantity({ id, title: choice.title, is_main: true }, terms, choice));
    }
    for (const metric of [...found.keys()].filter((name) => !drawn.has(name)).sort()) {
        quantities.push(quantity({ id: `metric:${metric}`, title: metric, is_main: false }, [{ series: found.get(metric), factor: 1 }]));
    }
    return quantities;
}
