// The reasons for which metrics are not available, each once.

import { element } from "../shared/text.js";

/** Splits `metric: reason`. Paths, which differ between nodes and jobs, are their last part. */
function parsed(text) {
    const [, metric, reason] = /^([^\s:]+): (.*)$/s.exec(text) ?? [null, "", text];
    return { metric, reason: reason.replace(/(?:\/[^\s:/]+)+\/([^\s:/]+)/g, "$1") };
}

/** Returns the reasons with their metrics, that with the most metrics first. */
export function byReason(texts) {
    const groups = new Map();
    for (const { metric, reason } of texts.map(parsed)) groups.set(reason, (groups.get(reason) ?? new Set()).add(metric));
    return [...groups].map(([reason, metrics]) => ({ reason, metrics: [...metrics].filter(Boolean).sort() }))
        .sort((one, other) => other.metrics.length - one.metrics.length);
}

/** Returns the list of the reasons; nothing without any. */
export function reasonList(texts) {
    const groups = byReason(texts);
    if (groups.length === 0) return [];
    const items = groups.map(({ reason, metrics }) => element("li", {}, element("strong", {}, reason), metrics.length > 0 ? `: ${metrics.join(", ")}` : ""));
    return [element("h3", {}, "Not available"), element("ul", { className: "reasons" }, ...items)];
}
