// The completeness of a job's data: the ledger, the losses, the cost of measuring.

import { dateText, duration, element, plainNumber, threeDigits } from "../shared/text.js";

const LOSSES_MAX = 50;

function ledgerList(summary) {
    const { ledger } = summary;
    const counts = [
        ["due", ledger.due], ["taken", ledger.taken], ["late", ledger.late], ["missed", ledger.missed], ["absent in their source", ledger.absent],
        ["dropped by the agent", ledger.dropped + summary.skipped], ["rejected", summary.rejected], ["quarantined", summary.quarantined],
        ["with unknown fate", summary.unknown], ["stored", summary.stored],
    ];
    return element("dl", { className: "ledger" }, ...counts.map(([name, count]) =>
        element("div", {}, element("dt", {}, name), element("dd", { title: String(count) }, plainNumber(count)))));
}

function lossTable(losses) {
    const head = ["Node", "Source", "Reason", "Begin", "Length", "Samples"];
    const rows = losses.slice(0, LOSSES_MAX).map((loss) => element("tr", {},
        element("th", { scope: "row" }, element("bdi", {}, loss.node)), element("td", {}, element("bdi", {}, loss.source ?? "–")), element("td", {}, loss.reason),
        element("td", {}, dateText(loss.first_us / 1e6)), element("td", {}, duration((loss.last_us - loss.first_us) / 1e6)),
        element("td", { className: "number" }, loss.reason === "unknown" ? "unknown" : String(loss.samples))));
    const table = element("table", {}, element("caption", {}, "Losses"),
        element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))), element("tbody", {}, ...rows));
    const more = losses.length - LOSSES_MAX;
    return element("div", {}, element("div", { className: "scroll" }, table), more > 0 ? element("p", { className: "remark" }, `and ${more} more`) : "");
}

/** Returns what is missing in words. */
function completenessText({ ledger, skipped, rejected, quarantined, unknown }) {
    const missing = [[ledger.missed, "missed"], [ledger.dropped + skipped, "dropped"], [rejected, "rejected"], [quarantined, "in quarantine"],
        [unknown, "with unknown fate"]].filter(([count]) => count > 0);
    return missing.length === 0 ? "Complete." : `Incomplete: ${missing.map(([count, word]) => `${plainNumber(count)} ${word}`).join(", ")} of ${plainNumber(ledger.due)} samples.`;
}

/** Creates the panel, from the summary and the losses of a job. */
export function completenessPanel() {
    const contents = element("div");
    const place = element("div", {}, element("h2", {}, "Completeness"), contents);
    place.show = (summary, losses) => {
        const { measuring } = summary;
        const share = Number.isFinite(measuring?.core_percent)
            ? `: ${threeDigits(measuring.core_percent)} % of one core on the mean node, at most ${threeDigits(measuring.highest_core_percent)} %` : "";
        const cost = measuring ? [element("p", {}, `Measuring took ${duration(measuring.cpu_s)} of CPU time${share}.`)] : [];
        const notes = (summary.notes ?? []).map((note) => element("p", { className: "remark" }, note));
        contents.replaceChildren(element("p", {}, completenessText(summary)), ledgerList(summary), ...cost, ...(losses.length > 0 ? [lossTable(losses)] : []), ...notes);
    };
    return place;
}
