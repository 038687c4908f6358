// The overview: what is worth a look, running and ended jobs, and the nodes.

import { element } from "../shared/text.js";
import { get } from "./api.js";
import { foldArrays } from "./arrays.js";
import { filtersOfAddress, keepInAddress, parametersOf, searchBar } from "./filters.js";
import { isComplete, isReady, openPage, run } from "./frame.js";
import { jobTable } from "./job_rows.js";
import { nodeMap } from "./node_map.js";
import { nodeValues } from "./node_values.js";
import { repeat } from "./repeat.js";
import { VIEWS, tiles } from "./tiles.js";

const REFRESH_S = 10;
const RUNNING_MAX = 100;
const PAGE = 25;
/** Requests for one page of the list: the tasks of an array are one entry, and further jobs fill the page. */
const REQUESTS_MAX = 4;

/** Creates the list of ended jobs with its pages. */
function endedJobs(sorted) {
    const place = jobTable("ended", "Ended jobs", sorted);
    const newer = element("button", { type: "button" }, "Previous");
    const older = element("button", { type: "button" }, "Next");
    const shown = element("output");
    const controls = element("div", { className: "controls" }, newer, older, shown);
    place.append(controls);
    let cursors = [null];
    let firsts = [0];
    let next = null;
    let parameters = {};
    place.load = async () => {
        let jobs = [];
        next = cursors[cursors.length - 1];
        for (let request = 0; request < REQUESTS_MAX && (request === 0 || (next !== null && foldArrays(jobs).length < PAGE)); request += 1) {
            const answer = await get("jobs", { state: "ended", ...parameters, limit: PAGE, cursor: next });
            jobs = [...jobs, ...answer.jobs];
            next = answer.next;
        }
        place.show(jobs);
        place.count = jobs.length;
        controls.hidden = cursors.length === 1 && next === null;
        newer.disabled = cursors.length === 1;
        older.disabled = next === null;
        const first = firsts[firsts.length - 1];
        shown.textContent = jobs.length ? `${first + 1} to ${first + jobs.length}` : "";
    };
    place.restart = (chosen) => {
        parameters = chosen;
        cursors = [null];
        firsts = [0];
    };
    place.isFirst = () => cursors.length === 1;
    newer.addEventListener("click", () => { cursors.pop(); firsts.pop(); place.load(); });
    older.addEventListener("click", () => { cursors.push(next); firsts.push(firsts[firsts.length - 1] + place.count); place.load(); });
    return place;
}

run(async () => {
    const { main, user } = await openPage();
    let filters = filtersOfAddress();
    const sorted = (sort, order) => apply({ ...filters, sort, order });
    const running = jobTable("running", "Running jobs", sorted);
    const ended = endedJobs(sorted);
    const map = nodeMap();
    map.hidden = true;
    const now = element("div", {}, running, map);
    const figures = tiles((view) => { const { view: _before, sort: _sort, order: _order, ...rest } = filters; apply(view ? { ...rest, view } : rest); });
    // What is chosen by hand counts more than the tile.
    const wanted = () => ({ ...(VIEWS[filters.view] ?? {}), ...filters });
    const parameters = () => parametersOf(wanted());
    const restart = () => {
        const { state = "", sort, order } = wanted();
        ended.restart(parameters());
        // A final state belongs to ended jobs.
        now.hidden = running.hidden = Boolean(filters.view && filters.view !== "running") || !["", "running"].includes(state.toLowerCase());
        ended.hidden = state.toLowerCase() === "running";
        running.order(sort, order);
        ended.order(sort, order);
        figures.choose(filters.view ?? null);
        form.show(filters);
    };
    const apply = (next) => {
        filters = Object.fromEntries(Object.entries(next).filter(([, value]) => value));
        keepInAddress(filters);
        restart();
        refresh();
    };
    const form = searchBar(filters, user.role !== "user", apply);
    main.append(element("h1", {}, "Jobs"), figures, form, now, ended);

    let jobs = [];
    const refresh = async () => {
        const loads = [];
        if (!running.hidden) {
            const { sort, ...others } = parameters();
            loads.push(get("jobs", { ...others, sort: sort === "waste" ? null : sort, state: "running", limit: RUNNING_MAX }).then((answer) => {
                jobs = answer.jobs;
                running.show(jobs);
            }));
        }
        if (!ended.hidden && ended.isFirst()) loads.push(ended.load());
        await Promise.all(loads);
    };
    // The states of failed jobs are known with the figures.
    const loadFigures = () => figures.load();
    if (filters.view === "failed") await loadFigures();
    restart();
    await repeat(REFRESH_S, refresh);
    isReady();
    repeat(REFRESH_S, loadFigures, { isVital: false });
    await repeat(3 * REFRESH_S, async () => {
        const { nodes } = await get("nodes");
        map.show(nodes, await nodeValues(nodes, jobs));
        document.documentElement.dataset.nodes = String(nodes.length);
    }, { isVital: false });
    isComplete();
});
