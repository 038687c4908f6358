// The overview: running and ended jobs, and the nodes.

import { element } from "../shared/text.js";
import { get } from "./api.js";
import { filterBox, filterForm, filtersOfAddress, parametersOf } from "./filters.js";
import { isReady, openPage, run } from "./frame.js";
import { jobTable } from "./job_rows.js";
import { nodeMap } from "./node_map.js";
import { nodeValues } from "./node_values.js";
import { repeat } from "./repeat.js";

const REFRESH_S = 10;
const RUNNING_MAX = 100;
const PAGE = 25;

/** Creates the list of ended jobs with its pages. */
function endedJobs() {
    const place = jobTable("ended", "Ended jobs");
    const newer = element("button", { type: "button" }, "Newer");
    const older = element("button", { type: "button" }, "Older");
    const shown = element("output");
    const controls = element("div", { className: "controls" }, newer, older, shown);
    place.append(controls);
    let cursors = [null];
    let next = null;
    let filters = {};
    place.load = async () => {
        const cursor = cursors[cursors.length - 1];
        const answer = await get("jobs", { state: "ended", ...parametersOf(filters), limit: PAGE, cursor });
        place.show(answer.jobs);
        next = answer.next;
        controls.hidden = cursors.length === 1 && next === null;
        newer.disabled = cursors.length === 1;
        older.disabled = next === null;
        const first = (cursors.length - 1) * PAGE;
        shown.textContent = answer.jobs.length ? `${first + 1} to ${first + answer.jobs.length}` : "";
    };
    place.restart = (chosen) => {
        filters = chosen;
        cursors = [null];
    };
    place.isFirst = () => cursors.length === 1;
    newer.addEventListener("click", () => { cursors.pop(); place.load(); });
    older.addEventListener("click", () => { cursors.push(next); place.load(); });
    return place;
}

run(async () => {
    const { main, user } = await openPage();
    let filters = filtersOfAddress();
    const running = jobTable("running", "Running jobs");
    const ended = endedJobs();
    const map = nodeMap();
    map.hidden = true;
    const isOnly = (state) => (filters.state ?? "").toLowerCase() === state;
    const restart = (chosen) => {
        filters = chosen;
        ended.restart(filters);
        // A final state belongs to ended jobs.
        running.hidden = Boolean(filters.state) && !isOnly("running");
        ended.hidden = isOnly("running");
    };
    restart(filters);
    const form = filterForm(filters, user.role !== "user", (chosen) => { restart(chosen); refresh(); });
    main.append(element("h1", {}, "Jobs"), filterBox(form, filters), running, map, ended);

    let jobs = [];
    const refresh = async () => {
        const loads = [];
        if (!running.hidden) {
            loads.push(get("jobs", { ...parametersOf(filters), state: "running", limit: RUNNING_MAX }).then((answer) => {
                jobs = answer.jobs;
                running.show(jobs);
            }));
        }
        if (!ended.hidden && ended.isFirst()) loads.push(ended.load());
        await Promise.all(loads);
    };
    await repeat(REFRESH_S, refresh);
    isReady();
    await repeat(3 * REFRESH_S, async () => {
        const { nodes } = await get("nodes");
        map.show(nodes, await nodeValues(nodes, jobs));
        document.documentElement.dataset.nodes = String(nodes.length);
    }, { isVital: false });
});
