// A table of jobs. Rows stay in the page while their jobs are listed, so that focus and scrolling stay, too.

import { duration, element, hundredths } from "../shared/text.js";
import { foldArrays, statesText } from "./arrays.js";
import { shortFindings } from "./findings.js";
import { foldedRows } from "./folded_rows.js";
import { coresOf } from "./job_cores.js";
import { elapsedS, elapsedText, idText, nodesText, ownerText, startText, stateLevel, stateText } from "./job_text.js";
import { smallMeter } from "./meters.js";
import { sparkline } from "./sparkline.js";
import { summaryOf } from "./summaries.js";

/** Jobs that ran for less than this are too short to judge, in seconds. */
const SHORT_S = 300;

/** Name, class, and the value by which the API can sort. */
const COLUMNS = [
    ["Job", "", null], ["User", "wide user", null], ["Queue", "widest", null], ["Account", "widest", null], ["Nodes", "middle", null], ["Started", "middle", "started"],
    ["Elapsed", "elapsed", "elapsed"], ["State", "final", null], ["Cores", "cores-cell", "cores"], ["Wasted, core-h", "final number wide", "waste"], ["Memory", "wide", null],
    ["GPU", "wide gpu", null], ["Findings", "findings-cell", null],
];

/** Creates the head. `sorted(sort, order)` is called for another order. */
function headOf(sorted) {
    const buttons = new Map();
    const cells = COLUMNS.map(([name, kind, sort]) => {
        const cell = element("th", { scope: "col", className: kind, role: "columnheader" });
        if (!sort || !sorted) {
            cell.textContent = name;
            return cell;
        }
        const button = element("button", { type: "button", className: "sort" }, name);
        button.addEventListener("click", () => {
            const isSame = cell.getAttribute("aria-sort") === "descending";
            sorted(sort, isSame ? "ascending" : "");
        });
        cell.append(button);
        buttons.set(sort, cell);
        return cell;
    });
    const head = element("tr", { role: "row" }, ...cells);
    head.order = (chosen, order) => buttons.forEach((cell, sort) => {
        if (sort === (chosen || "started")) cell.setAttribute("aria-sort", order || "descending");
        else cell.removeAttribute("aria-sort");
    });
    return head;
}

/** Creates a section with a table of jobs. */
export function jobTable(id, title, sorted = null) {
    const rows = new Map();
    const openArrays = new Set();
    // Narrow pages lay the rows out as blocks, which are no longer a table unless they have its roles.
    const body = element("tbody", { role: "rowgroup" });
    const head = headOf(sorted);
    const table = element("table", { className: `jobs ${id}`, role: "table" }, element("thead", { role: "rowgroup" }, head), body);
    const empty = element("p", { className: "soft", hidden: true }, "None.");
    const all = foldedRows();
    const place = element("section", {}, element("h2", { id }, title), element("div", { className: "scroll" }, table), empty, all);
    place.setAttribute("aria-labelledby", id);
    table.setAttribute("aria-labelledby", id);
    let listed = [];

    // Only jobs that the user sees are summarized.
    const seen = new IntersectionObserver((entries) => {
        for (const entry of entries.filter((one) => one.isIntersecting)) rows.get(entry.target.dataset.key)?.summarize();
    });

    const toggle = (key) => {
        if (!openArrays.delete(key)) openArrays.add(key);
        place.show(listed);
    };
    /** Returns keys, jobs and the makers of the rows of an entry. */
    const linesOf = ({ id: array, key, jobs }) => {
        const lines = jobs.map((job) => ({ key: String(job.key), shown: job, make: jobRow }));
        if (jobs.length === 1) return lines;
        const isOpen = openArrays.has(key);
        return [{ key, shown: { array, jobs, isOpen, toggle: () => toggle(key) }, make: arrayRow }, ...(isOpen ? lines : [])];
    };
    place.show = (jobs) => {
        listed = jobs;
        const lines = foldArrays(jobs).flatMap(linesOf);
        const keys = new Set(lines.map(({ key }) => key));
        for (const [key, row] of rows) {
            if (keys.has(key)) continue;
            seen.unobserve(row.element);
            row.element.remove();
            rows.delete(key);
        }
        lines.forEach(({ key, shown, make }, position) => {
            const row = rows.get(key) ?? make(shown);
            row.update(shown);
            if (body.children[position] !== row.element) body.insertBefore(row.element, body.children[position] ?? null);
            if (!rows.has(key)) {
                row.element.dataset.key = key;
                rows.set(key, row);
                seen.observe(row.element);
            } else if (row.isSummarized) {
                row.summarize();
            }
        });
        empty.hidden = jobs.length > 0;
        table.hidden = jobs.length === 0;
        all.fold([...body.children]);
    };
    /** Marks the column by which the jobs are sorted. */
    place.order = head.order;
    return place;
}

function cellsOf() {
    return COLUMNS.slice(1).map(([label, kind]) => {
        const cell = element("td", { className: kind, role: "cell" });
        // Narrow pages have no head of the table.
        cell.dataset.label = label;
        return cell;
    });
}

/** Creates the row of the tasks of an array. */
function arrayRow({ array }) {
    const button = element("button", { type: "button", className: "array-key" });
    const name = element("bdi", { className: "job-name" });
    const cells = cellsOf();
    const [user, queue, account, nodes, started, elapsed, state, , , , , findings] = cells;
    const row = { element: element("tr", { role: "row", className: "array" }, element("th", { scope: "row", role: "rowheader" }, button, name), ...cells), summarize: () => {} };
    let toggle = null;
    button.addEventListener("click", () => toggle());
    row.update = (next) => {
        const { jobs } = next;
        const first = jobs[0];
        toggle = next.toggle;
        button.textContent = `${array} · ${jobs.length} tasks`;
        button.setAttribute("aria-expanded", String(next.isOpen));
        name.textContent = first.name ?? "";
        user.replaceChildren(element("bdi", {}, ownerText(first)));
        queue.replaceChildren(element("bdi", {}, first.queue ?? "–"));
        account.replaceChildren(element("bdi", {}, first.account ?? "–"));
        const names = new Set(jobs.flatMap((job) => job.nodes));
        nodes.textContent = names.size === 1 ? [...names][0] : `${names.size} nodes`;
        started.textContent = startText(jobs.reduce((earliest, job) => (job.started_us < earliest.started_us ? job : earliest)));
        const times = jobs.map(elapsedS);
        const [least, most] = [Math.min(...times), Math.max(...times)].map((seconds) => duration(Math.round(seconds)));
        elapsed.textContent = least === most ? least : `${least} to ${most}`;
        row.element.classList.toggle("short", Math.max(...times) < SHORT_S);
        const levels = jobs.map(stateLevel);
        state.textContent = statesText(jobs);
        state.className = `final level-cell ${levels.includes("critical") ? "critical" : levels.includes("warning") ? "warning" : ""}`;
        findings.replaceChildren(element("span", { className: "soft" }, next.isOpen ? "" : "open the array"));
    };
    return row;
}

/** Shows the cores in use over the time of a job. */
function coresCell(cell, job, { cores, mean }) {
    const used = mean === null ? "–" : hundredths(mean);
    const most = Math.max(job.cores ?? 0, ...cores.map((value) => value ?? 0));
    cell.replaceChildren(element("div", { className: "small-cores" }, sparkline(cores, most), element("span", {}, job.cores === null ? used : `${used} of ${job.cores}`)));
}

function jobRow(first) {
    const link = element("a", { href: `job?key=${first.key}` }, element("bdi", {}, idText(first)));
    const name = element("bdi", { className: "job-name" });
    const cells = cellsOf();
    const [user, queue, account, nodes, started, elapsed, state, cores, wasted, memory, gpu, findings] = cells;
    const row = { element: element("tr", { role: "row" }, element("th", { scope: "row", role: "rowheader" }, link, name), ...cells), isSummarized: false };
    let job = first;

    row.update = (next) => {
        job = next;
        row.element.classList.toggle("short", elapsedS(job) < SHORT_S);
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
        coresOf(job).then((used) => {
            if (!used) return;
            coresCell(cores, job, used);
            wasted.textContent = used.wasted_core_s === null ? "–" : hundredths(used.wasted_core_s / 3600);
        }, () => {});
    };
    row.summarize = async () => {
        row.isSummarized = true;
        try {
            const summary = await summaryOf(job);
            // Only a row with a finding has colours.
            const hasFindings = summary.findings.length > 0;
            const meter = (label) => (summary.meters ?? []).find((one) => one.label === label);
            row.element.classList.toggle("found", hasFindings);
            // What is not known has no meter.
            const isColoured = (level) => hasFindings && level !== undefined && level !== "good";
            const shown = (label) => ({ ...meter(label), level: isColoured(meter(label)?.level) ? meter(label).level : "plain" });
            memory.replaceChildren(smallMeter(shown("memory")));
            gpu.replaceChildren(smallMeter(shown("GPU")));
            // The column of GPUs is shown if a job has one.
            if (Number.isFinite(meter("GPU")?.share)) gpu.closest("table").classList.add("has-gpus");
            const isShort = elapsedS(job) < SHORT_S;
            findings.replaceChildren(hasFindings ? shortFindings(summary.findings) : element("span", { className: "soft" }, isShort ? "too short" : "none"));
        } catch (error) {
            findings.replaceChildren(element("span", { className: "soft" }, error.message));
        }
    };
    return row;
}
