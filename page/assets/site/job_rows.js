// A table of jobs. Rows stay in the page while their jobs are listed, so that focus and scrolling stay, too.

import { element } from "../shared/text.js";
import { shortFindings } from "./findings.js";
import { elapsedText, idText, nodesText, ownerText, startText, stateLevel, stateText } from "./job_text.js";
import { smallMeter } from "./meters.js";
import { summaryOf } from "./summaries.js";

const COLUMNS = [
    ["Job", ""], ["User", "wide user"], ["Queue", "wide"], ["Account", "widest"], ["Nodes", "middle"], ["Started", "middle"], ["Elapsed", ""], ["State", "final"],
    ["CPU", ""], ["Memory", ""], ["GPU", "wide gpu"], ["Findings", "findings-cell"],
];

/** Creates a section with a table of jobs. */
export function jobTable(id, title) {
    const rows = new Map();
    // Narrow pages lay the rows out as blocks, which are no longer a table unless they have its roles.
    const body = element("tbody", { role: "rowgroup" });
    const head = element("tr", { role: "row" }, ...COLUMNS.map(([name, kind]) => element("th", { scope: "col", className: kind, role: "columnheader" }, name)));
    const table = element("table", { className: `jobs ${id}`, role: "table" }, element("thead", { role: "rowgroup" }, head), body);
    const empty = element("p", { className: "soft", hidden: true }, "None.");
    const place = element("section", {}, element("h2", { id }, title), element("div", { className: "scroll" }, table), empty);
    place.setAttribute("aria-labelledby", id);
    table.setAttribute("aria-labelledby", id);

    // Only jobs that the user sees are summarized.
    const seen = new IntersectionObserver((entries) => {
        for (const entry of entries.filter((one) => one.isIntersecting)) rows.get(entry.target.dataset.key)?.summarize();
    });

    place.show = (jobs) => {
        const keys = new Set(jobs.map((job) => String(job.key)));
        for (const [key, row] of rows) {
            if (keys.has(key)) continue;
            seen.unobserve(row.element);
            row.element.remove();
            rows.delete(key);
        }
        jobs.forEach((job, position) => {
            const key = String(job.key);
            const row = rows.get(key) ?? jobRow(job);
            row.update(job);
            if (body.children[position] !== row.element) body.insertBefore(row.element, body.children[position] ?? null);
            if (!rows.has(key)) {
                rows.set(key, row);
                seen.observe(row.element);
            } else if (row.isSummarized) {
                row.summarize();
            }
        });
        empty.hidden = jobs.length > 0;
        table.hidden = jobs.length === 0;
    };
    return place;
}

function jobRow(first) {
    const link = element("a", { href: `job?key=${first.key}` }, element("bdi", {}, idText(first)));
    const name = element("bdi", { className: "job-name" });
    const cells = COLUMNS.slice(1).map(([label, kind]) => {
        const cell = element("td", { className: kind, role: "cell" });
        // Narrow pages have no head of the table.
        cell.dataset.label = label;
        return cell;
    });
    const [user, queue, account, nodes, started, elapsed, state, cpu, memory, gpu, findings] = cells;
    const row = { element: element("tr", { role: "row" }, element("th", { scope: "row", role: "rowheader" }, link, name), ...cells), isSummarized: false };
    row.element.dataset.key = String(first.key);
    let job = first;

    row.update = (next) => {
        job = next;
        name.textContent = job.name ?? "";
        user.replaceChildren(element("bdi", {}, ownerText(job)));
        queue.replaceChildren(element("bdi", {}, job.queue ?? "–"));
        account.replaceChildren(element("bdi", {}, job.account ?? "–"));
        nodes.replaceChildren(element("bdi", {}, nodesText(job)));
        nodes.title = job.nodes.slice(0, 100).join(" ");
        started.textContent = startText(job);
        elapsed.textContent = elapsedText(job);
        state.textContent = stateText(job);
        state.className = `final level-cell ${stateLevel(job)}`;
    };
    row.summarize = async () => {
        row.isSummarized = true;
        try {
            const summary = await summaryOf(job);
            const meter = (label) => (summary.meters ?? []).find((one) => one.label === label);
            cpu.replaceChildren(smallMeter(meter("CPU")));
            memory.replaceChildren(smallMeter(meter("memory")));
            gpu.replaceChildren(smallMeter(meter("GPU")));
            // The column of GPUs is shown if a job has one.
            if (Number.isFinite(meter("GPU")?.share)) gpu.closest("table").classList.add("has-gpus");
            findings.replaceChildren(shortFindings(summary.findings));
        } catch (error) {
            findings.replaceChildren(element("span", { className: "soft" }, error.message));
        }
    };
    return row;
}
