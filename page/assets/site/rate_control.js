// Changes of the sampling plan of a running job, and the answers of its nodes.

import { clockText, duration, element, plainNumber, threeDigits } from "../shared/text.js";
import { post } from "./api.js";

/** The time after the last key, in milliseconds, after which the periods are sent: several keys are one request. */
const SETTLED_MS = 400;

const DURATIONS = [["1min", "1 min"], ["10min", "10 min"], ["1h", "1 h"], ["", "as long as allowed"]];

/** Returns nodes with the same text as one line. */
function byText(texts) {
    const groups = new Map();
    for (const [node, text] of texts) groups.set(text, [...(groups.get(text) ?? []), node]);
    return [...groups].map(([text, nodes]) => {
        const names = nodes.length > 4 ? `${nodes.slice(0, 3).join(", ")} and ${nodes.length - 3} more` : nodes.join(", ");
        return `${names}: ${text}`;
    });
}

function grantedText(answer) {
    const periods = Object.entries(answer.metrics ?? {}).map(([metric, period]) => `${metric} every ${period}`);
    const until = answer.until_us ? ` until ${clockText(answer.until_us / 1e6, 1)}` : "";
    const reasons = Object.entries(answer.reasons ?? {}).map(([metric, reason]) => `; ${metric}: ${reason}`);
    const unavailable = (answer.unavailable ?? []).map(([metric, reason]) => `; ${metric} is unavailable: ${reason}`);
    return `granted${periods.length ? `: ${periods.join(", ")}` : ""}${until}${reasons.join("")}${unavailable.join("")}`;
}

/** Returns the predicted cost of all sampling of the job on the node where it is highest; empty if no node has told it. */
function costText(nodes) {
    const costs = nodes.map(({ answer }) => answer?.cost).filter(Boolean);
    if (costs.length === 0) return "";
    const { cpu_percent: cpu, samples_per_s: samples, bytes_per_s: bytes } = costs.reduce((most, cost) => (cost.cpu_percent > most.cpu_percent ? cost : most));
    return `Predicted cost of all sampling of the job, on the node where it is highest: ${threeDigits(cpu)} % of a CPU, ${plainNumber(samples)} samples/s, ` +
        `${plainNumber(bytes)} bytes/s. `;
}

function answerText(answer) {
    if (!answer) return "no answer in time";
    if (answer.answer === "refused" || answer.code) {
        const instead = answer.instead ? `; would be granted: ${answer.instead}` : "";
        return `refused: ${answer.message}${instead}`;
    }
    if (answer.answer === "reset") return answer.ended === 1 ? "ended 1 change" : `ended ${answer.ended} changes`;
    return answer.answer === "done" ? "done" : grantedText(answer);
}

/** Creates the controls. `changed` is called after each answer. */
export function rateControl(job, changed) {
    const forTime = element("select", {}, ...DURATIONS.map(([value, text]) => element("option", { value }, text)));
    forTime.value = "10min";
    const reset = element("button", { type: "button" }, "End my changes");
    const told = element("div", { className: "told", role: "status" });
    const place = element("div", {}, element("div", { className: "controls" }, element("label", {}, "Changes last ", forTime), reset), told);
    let plan = {};
    let timer = null;

    const send = async (path, body) => {
        try {
            const answer = await post(`jobs/${job.key}/${path}`, body);
            const nodes = answer.nodes ?? [];
            const delay_s = answer.at_us ? answer.at_us / 1e6 - Date.now() / 1000 : 0;
            const at = delay_s > 0.5 ? `It takes effect in ${duration(Math.round(delay_s * 10) / 10)}.` : "";
            const isRefused = nodes.some(({ answer: of }) => !of || of.answer === "refused" || of.code);
            const lines = byText(nodes.map((node) => [node.node, answerText(node.answer)]));
            told.replaceChildren(...lines.map((line) => element("p", { className: isRefused ? "refused" : "granted" }, line)),
                element("span", { className: "remark" }, costText(nodes), at));
        } catch (error) {
            const instead = error.members?.instead ? ` Would be granted: ${error.members.instead}.` : "";
            told.replaceChildren(element("p", { className: "refused" }, `Refused: ${error.message}.${instead}`.replace("..", ".")));
        }
        await changed();
    };
    const sendPlan = () => {
        const wanted = plan;
        plan = {};
        return send("periods", { plan: wanted, ...(forTime.value ? { for: forTime.value } : {}) });
    };
    /** Asks for a period of a metric. */
    place.change = (metric, period) => {
        plan[metric] = period;
        clearTimeout(timer);
        timer = setTimeout(sendPlan, SETTLED_MS);
    };
    reset.addEventListener("click", () => send("reset", {}));
    return place;
}
