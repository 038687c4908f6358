// The table of a job's metrics: period, its cause and cost, and the keys that change it.

import { duration, element, plainNumber } from "../shared/text.js";
import { longer, shorter, withWindow } from "./periods.js";

function periodCell(shown, wanted) {
    return wanted ? `${shown} → ${wanted} …` : shown;
}

/** Creates the table, of a running or an ended job. `change(metric, period)` is called for a new period; without it there are no keys. */
export function metricTable(isRunning, change) {
    const rows = new Map();
    const head = ["Metric", "Period", "Cost, samples/s", "Cause", ...(isRunning ? ["Ends in"] : []), ...(change ? ["Change"] : [])];
    const kinds = ["", "number", "number middle", "", isRunning ? "middle" : "", ""];
    const body = element("tbody");
    const table = element("table", { className: "metrics" }, element("caption", { className: "unseen" }, "Sampled metrics"),
        element("thead", {}, element("tr", {}, ...head.map((name, column) => element("th", { scope: "col", className: kinds[column] }, name)))), body);
    const place = element("div", { className: "scroll" }, table);

    const made = (first) => {
        const [period, rate, cause, ends] = ["number", "number middle", "cause", "middle"].map((className) => element("td", { className }));
        const level = first.level ? element("span", { className: "soft" }, ` of each ${first.level}`) : "";
        const line = element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, first.metric), level), period, rate, cause, ...(isRunning ? [ends] : []));
        const entry = { line, wanted: null, us: first.us };
        const button = (text, step, label) => {
            const key = element("button", { type: "button" }, text);
            key.addEventListener("click", () => {
                const next = step(entry.wanted ?? entry.us);
                if (next === null) return;
                entry.wanted = next;
                entry.show(entry.row);
                change(first.metric, withWindow(next, entry.row.windowUs, entry.row.isHistogram));
            });
            entry[label] = key;
            return key;
        };
        if (change) {
            const slower = button("−", longer, "slower");
            const faster = button("+", shorter, "faster");
            // Periods of steps and tasks are changed by the command.
            line.append(element("td", { className: "keys" }, ...(first.level ? [] : [slower, " ", faster])));
        }
        entry.show = (row) => {
            entry.row = row;
            entry.us = row.us;
            const shown = row.periods.join(", ");
            period.textContent = periodCell(shown, entry.wanted === null ? null : withWindow(entry.wanted, row.windowUs, row.isHistogram));
            rate.textContent = plainNumber(row.rate);
            cause.replaceChildren(row.causes.join(", "), ...row.reasons.map((reason) => element("p", { className: "remark" }, reason)));
            ends.textContent = row.until_us ? duration(Math.max(Math.round(row.until_us / 1e6 - Date.now() / 1000), 0)) : "–";
            const from = entry.wanted ?? row.us;
            for (const [key, step, verb] of [[entry.slower, longer, "less"], [entry.faster, shorter, "more"]]) {
                if (!key) continue;
                const next = step(from);
                key.disabled = next === null;
                const label = next === null ? `${row.metric}: no other period` : `Sample ${row.metric} ${verb} often: every ${withWindow(next, row.windowUs, row.isHistogram)}`;
                key.setAttribute("aria-label", label);
                key.title = label;
            }
        };
        return entry;
    };

    place.show = (list) => {
        const keys = new Set();
        list.forEach((row, position) => {
            const key = `${row.metric} ${row.level}`;
            keys.add(key);
            const entry = rows.get(key) ?? made(row);
            rows.set(key, entry);
            entry.show(row);
            if (body.children[position] !== entry.line) body.insertBefore(entry.line, body.children[position] ?? null);
        });
        for (const [key, entry] of rows) {
            if (keys.has(key)) continue;
            entry.line.remove();
            rows.delete(key);
        }
    };
    /** Forgets the periods that were asked for: the plan says what is in force. */
    place.settle = () => {
        for (const entry of rows.values()) {
            entry.wanted = null;
            entry.show(entry.row);
        }
    };
    return place;
}
