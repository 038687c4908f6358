// The quantities of a job that are drawn, and the metrics from which the server computes them over all nodes.

import { unitText } from "../shared/text.js";
import { QUANTITIES } from "./quantities.js";

/** Units whose values are not added up over the series of a node. */
const MEANS = ["percent", "celsius"];

const LEVELS = [null, "step", "task"];

/** Returns one row for each metric. Series of steps and tasks are contained in those of the job: they count only for a metric without the latter. */
function byMetric(all) {
    const found = new Map();
    for (const row of all) {
        const known = found.get(row.metric);
        if (!known || LEVELS.indexOf(row.level) < LEVELS.indexOf(known.level)) found.set(row.metric, row);
    }
    return found;
}

function quantity(base, rows) {
    const unit = rows[0].rate_unit ?? rows[0].unit;
    const terms = rows.map(({ metric, level, factor }) => ({ metric, level, factor }));
    const isRate = (rows[0].rate_unit ?? null) !== null;
    return { ...base, unit, unitText: unitText(unit), terms, isMean: MEANS.includes(unit), isRate };
}

/** Returns the quantities of a job from the rows of its metrics: the important ones, then all other metrics by name. */
export function quantitiesOfMetrics(all) {
    const found = byMetric(all);
    const drawn = new Set();
    const quantities = [];
    for (const { id, choices } of QUANTITIES) {
        const choice = choices.find(({ metric }) => found.has(metric));
        if (!choice) continue;
        const rows = [[[choice.metric, ...choice.plus], 1], [choice.minus, -1]].flatMap(([metrics, factor]) =>
            metrics.filter((metric) => found.has(metric)).map((metric) => ({ ...found.get(metric), factor })));
        if (choice.plus.length + choice.minus.length === 0) drawn.add(choice.metric);
        quantities.push(quantity({ id, title: choice.title, is_main: true }, rows));
    }
    // Values that users push come first, those of the measurement last.
    const rank = (name) => (name.startsWith("user.") ? 0 : name.startsWith("agent.") ? 2 : 1);
    const others = [...found.keys()].filter((name) => !drawn.has(name)).sort();
    for (const metric of others.sort((one, other) => rank(one) - rank(other))) {
        quantities.push(quantity({ id: `metric:${metric}`, title: metric, is_main: false }, [{ ...found.get(metric), factor: 1 }]));
    }
    return quantities;
}
