// The quantities of a job that are drawn, and the series from which they are computed.

import { unitText } from "../shared/text.js";
import { QUANTITIES } from "./quantities.js";

/** Units whose values are not added up over the series of a node. */
const MEANS = ["percent", "celsius"];

const levelOf = (series) => (series.labels.task ? 2 : series.labels.step ? 1 : 0);

/** Returns the series by metric. Those of steps and tasks are contained in those of the job: they count only for a metric without the latter. */
function seriesByMetric(all) {
    const levels = new Map();
    for (const series of all) levels.set(series.metric, Math.min(levels.get(series.metric) ?? 2, levelOf(series)));
    const found = new Map();
    for (const series of all.filter((one) => levelOf(one) === levels.get(one.metric))) {
        if (!found.has(series.metric)) found.set(series.metric, []);
        found.get(series.metric).push(series);
    }
    return found;
}

function quantity(base, terms) {
    const first = terms[0].series[0];
    const unit = first.rate_unit ?? first.unit;
    const factors = new Map();
    for (const { series, factor } of terms) for (const one of series) factors.set(one.id, factor);
    return { ...base, unit, unitText: unitText(unit), factors, isMean: MEANS.includes(unit) };
}

/** Returns the quantities of a job: the important ones, then all other metrics by name. */
export function quantitiesOf(all) {
    const found = seriesByMetric(all);
    const drawn = new Set();
    const quantities = [];
    for (const { id, choices } of QUANTITIES) {
        const choice = choices.find(({ metric }) => found.has(metric));
        if (!choice) continue;
        const terms = [[[choice.metric, ...choice.plus], 1], [choice.minus, -1]].flatMap(([metrics, factor]) =>
            metrics.filter((metric) => found.has(metric)).map((metric) => ({ series: found.get(metric), factor })));
        if (choice.plus.length + choice.minus.length === 0) drawn.add(choice.metric);
        quantities.push(quantity({ id, title: choice.title, is_main: true }, terms));
    }
    for (const metric of [...found.keys()].filter((name) => !drawn.has(name)).sort()) {
        quantities.push(quantity({ id: `metric:${metric}`, title: metric, is_main: false }, [{ series: found.get(metric), factor: 1 }]));
    }
    return quantities;
}
