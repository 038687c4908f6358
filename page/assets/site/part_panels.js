// The panels of a job page with small charts of its parts: processes, ranks, CPUs and GPUs.

import { element, valueText } from "../shared/text.js";
import { get } from "./api.js";
import { columnsOf } from "./columns.js";
import { sparkline } from "./sparkline.js";

const POINTS = 60;
const SHOWN_MAX = 24;

/** Series of a metric up to which those of all nodes are read together. */
const ALL_NODES_SERIES = 200;

const HEIGHT = 44;

/** The kinds of parts: the metrics that tell them apart, of which the first one that was sampled counts. */
const KINDS = [
    { id: "processes", title: "Processes", metrics: ["busiest.cpu.usage"], level: null, remark: "The busiest processes of the job.",
        name: ({ comm, pid }) => `${comm ?? "?"} (${pid ?? "?"})`, isPart: ({ pid }) => pid !== undefined },
    { id: "ranks", title: "Ranks", metrics: ["cpu.usage"], level: "task", remark: "The tasks of the job's steps.",
        name: ({ step, task }) => `step ${step}, task ${task}`, isPart: ({ task }) => task !== undefined },
    { id: "cpus", title: "CPUs", metrics: ["cpu.usage.per_cpu", "cpu.estimated.per_cpu"], level: null, remark: "The CPUs that the job used.",
        name: ({ cpu }) => `CPU ${cpu}`, isPart: ({ cpu }) => cpu !== undefined },
    { id: "gpus", title: "GPUs", metrics: ["gpu.utilization", "gpu.gpm.sm.active"], level: null, remark: "The GPUs of the job.",
        name: ({ gpu, mig }) => `GPU ${gpu}${mig === undefined ? "" : `, MIG ${mig}`}`, isPart: ({ gpu }) => gpu !== undefined },
];

const meanOf = (values) => {
    const known = values.filter((value) => value !== null);
    return known.length > 0 ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
};

function smallChart({ name, values, mean, most }, unit, top) {
    const text = `${name}: mean ${valueText(unit, mean)}, max ${valueText(unit, most)}`;
    const picture = sparkline(values, top, HEIGHT);
    return element("figure", { className: "multiple", title: text }, picture,
        element("figcaption", {}, element("bdi", {}, name), element("span", {}, valueText(unit, mean))));
}

function panel(job, kind, row, nodes) {
    const isOfAll = row.series <= ALL_NODES_SERIES;
    const choice = element("select", {}, ...(isOfAll && nodes.length > 1 ? [element("option", { value: "" }, "all")] : []),
        ...nodes.map((node) => element("option", { value: node }, node)));
    const grid = element("div", { className: "multiples" });
    const remark = element("p", { className: "remark" }, "…");
    const place = element("div", {}, element("h2", {}, kind.title),
        ...(nodes.length > 1 ? [element("div", { className: "controls" }, element("label", {}, "Node ", choice))] : []), grid, remark);
    place.load = async () => {
        const node = choice.value;
        const several = nodes.length > 1 && !node;
        try {
            const answer = await get(`jobs/${job.key}/samples`, { metric: row.metric, points: POINTS, node });
            const parts = answer.series.filter(({ labels, metric }) => metric === row.metric && kind.isPart(labels)).map((series) => {
                const { columns } = columnsOf(series, answer);
                const most = columns[2].reduce((max, value) => Math.max(max, value ?? 0), 0);
                return { name: `${kind.name(series.labels)}${several ? ` on ${series.node}` : ""}`, values: columns[1], mean: meanOf(columns[1]), most };
            });
            parts.sort((one, other) => (other.mean ?? -1) - (one.mean ?? -1));
            const unit = row.rate_unit ?? row.unit;
            const top = parts.reduce((max, { values }) => values.reduce((most, value) => Math.max(most, value ?? 0), max), 0);
            grid.replaceChildren(...parts.slice(0, SHOWN_MAX).map((part) => smallChart(part, unit, top)));
            const more = parts.length > SHOWN_MAX ? ` ${SHOWN_MAX} of ${parts.length} are shown.` : "";
            const scale = `${valueText(unit, top)}${unit === "cores" ? " cores" : ""}`;
            remark.textContent = parts.length === 0 ? "There are no samples yet."
                : `${kind.remark} The highest mean is first; all have the scale from 0 to ${scale} (${row.metric}).${more}`;
        } catch (error) {
            remark.textContent = `The values cannot be loaded: ${error.message}`;
        }
        place.dataset.loaded = String(Number(place.dataset.loaded ?? 0) + 1);
    };
    choice.addEventListener("change", place.load);
    return place;
}

/** Returns the panels for which the job has metrics, in the form of `tabs`. */
export function partPanels(job, metrics) {
    const nodes = job.nodes.toSorted();
    return KINDS.flatMap((kind) => {
        const row = kind.metrics.map((name) => metrics.find(({ metric, level }) => metric === name && level === kind.level)).find(Boolean);
        if (!row) return [];
        const contents = panel(job, kind, row, nodes);
        return [{ id: kind.id, title: kind.title, contents, shown: contents.load }];
    });
}
