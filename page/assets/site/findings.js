// Findings about a job.

import { element } from "../shared/text.js";

const SEVERITIES = ["critical", "warning", "note"];

const severityOf = (finding) => (SEVERITIES.includes(finding.severity) ? finding.severity : "note");

/** Returns the number of findings of each severity, and the most severe one in words. */
export function shortFindings(findings) {
    if (findings.length === 0) return element("span", { className: "soft" }, "none");
    const counts = SEVERITIES.map((severity) => [severity, findings.filter((finding) => severityOf(finding) === severity).length]);
    const badges = counts.filter(([, count]) => count > 0)
        .map(([severity, count]) => element("span", { className: `badge ${severity}` }, `${count} ${severity}${count > 1 && severity !== "critical" ? "s" : ""}`));
    return element("div", { className: "short-findings", title: findings[0].sentence }, ...badges, element("span", { className: "sentence" }, findings[0].sentence));
}

/** Returns what to do, in words and as a line for the scheduler of the job. */
function remedyOf({ remedies = {} }, scheduler) {
    const own = remedies[scheduler] ? [remedies[scheduler]] : [];
    const others = Object.entries(remedies).filter(([name]) => name !== "any" && !scheduler);
    const words = remedies.any ?? others.map(([name, text]) => `${name}: ${text}`).join("; ");
    return [...(words ? withCode(words) : []), ...own.flatMap((line) => [" ", element("code", {}, line)])];
}

/** Returns a text whose parts between backticks are code. */
function withCode(text) {
    return text.split("`").map((part, number) => (number % 2 === 1 ? element("code", {}, part) : part));
}

/** Returns the list of findings about a job with evidence and remedies. */
export function findingList({ findings, scheduler }) {
    return element("ul", { className: "findings" }, ...findings.map((finding) => {
        const severity = severityOf(finding);
        const item = element("li", { className: severity },
            element("h3", {}, element("span", { className: `level ${severity}` }, severity), " ", finding.sentence),
            element("p", { className: "evidence" }, finding.evidence));
        const remedy = remedyOf(finding, scheduler);
        if (remedy.length > 0) item.append(element("p", { className: "remedy" }, element("b", {}, "Next time: "), ...remedy));
        return item;
    }));
}
