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

function remedyText(finding) {
    const remedies = Object.entries(finding.remedies ?? {});
    const any = remedies.find(([scheduler]) => scheduler === "any");
    return any ? any[1] : remedies.map(([scheduler, text]) => `${scheduler}: ${text}`).join("; ");
}

/** Returns a text whose parts between backticks are code. */
function withCode(text) {
    return text.split("`").map((part, number) => (number % 2 === 1 ? element("code", {}, part) : part));
}

/** Returns the list of findings with evidence and remedies. */
export function findingList(findings) {
    return element("ul", { className: "findings" }, ...findings.map((finding) => {
        const severity = severityOf(finding);
        const item = element("li", { className: severity },
            element("h3", {}, element("span", { className: `level ${severity}` }, severity), " ", finding.sentence),
            element("p", { className: "evidence" }, finding.evidence));
        const remedy = remedyText(finding);
        if (remedy) item.append(element("p", { className: "remedy" }, element("b", {}, "Next time: "), ...withCode(remedy)));
        return item;
    }));
}
