// The page about the runs of one name: where they changed, and what each used.

import { dateText, element } from "../shared/text.js";
import { get } from "./api.js";
import { isComplete, isReady, openPage, run } from "./frame.js";
import { QUANTITIES, quantityText, trendCharts } from "./trend_charts.js";

/** The number of changes that are listed at first, and of runs in the table. */
const CHANGES_SHOWN = 3;
const RUNS_SHOWN = 20;

/** The number of runs from which on changes can be told from chance. */
const RUNS_MIN = 14;

function percentText({ percent }) {
    if (percent === null) return "from 0";
    const size = Math.abs(percent);
    return `${percent < 0 ? "−" : "+"}${size.toFixed(size < 9.95 ? 1 : 0)} %`;
}

const jobLink = ({ key, job }) => element("a", { href: `job?key=${key}` }, "job ", element("bdi", {}, job));

/** Returns the sentence about a change: its first quantities. */
function changeHead(change) {
    const [first, second] = change.levels.map((level) => `${QUANTITIES.get(level.quantity).title} ${percentText(level)}`);
    return [`${first.charAt(0).toUpperCase()}${first.slice(1)}${second ? `, ${second}` : ""} since `, jobLink(change), `, ${dateText(change.started_us / 1e6).slice(0, 10)}`];
}

function changeItem(change) {
    const lines = change.levels.map((level) => {
        const text = (value) => quantityText(level.quantity, value);
        return element("li", {}, `${QUANTITIES.get(level.quantity).title} ${percentText(level)}: ${text(level.before)} before, ${text(level.after)} after`);
    });
    const others = change.with.map(({ attribute, before, after }) =>
        element("li", { className: "with" }, `${attribute}: `, element("bdi", {}, before), " before, ", element("bdi", {}, after), " after"));
    const cause = others.length > 0 ? [element("p", { className: "soft" }, "Changed there, too:"), element("ul", {}, ...others)] : [];
    return element("li", { className: "panel" }, element("h3", {}, ...changeHead(change)), element("ul", {}, ...lines), ...cause);
}

/** Creates the list of the changes, the latest first. */
function changeList({ changes }) {
    const items = changes.toReversed().map(changeItem);
    const more = items.slice(CHANGES_SHOWN);
    const place = element("section", { hidden: items.length === 0 }, element("h2", { id: "changes" }, "Changes"),
        element("ol", { className: "changes" }, ...items.slice(0, CHANGES_SHOWN)));
    if (more.length > 0) {
        place.append(element("details", { className: "figures" }, element("summary", {}, `Earlier changes: ${more.length}`), element("ol", { className: "changes" }, ...more)));
    }
    place.setAttribute("aria-labelledby", "changes");
    return place;
}

function verdict({ changes, runs }) {
    if (changes.length > 0) return changeHead(changes[changes.length - 1]);
    return [runs.length < RUNS_MIN ? `Too few runs to tell a change from chance: ${RUNS_MIN} are needed` : "No change shown"];
}

/** Creates the table of the latest runs. */
function runTable({ runs }) {
    const shown = [...QUANTITIES.keys()].filter((key) => runs.some((one) => one[key] !== null));
    const heads = shown.map((key) => element("th", { scope: "col", className: "number" }, QUANTITIES.get(key).title));
    const comparison = (key, before) => (before ? [element("a", { href: `compare?a=${before.key}&b=${key}` }, "with ", element("bdi", {}, before.job))] : []);
    const before = new Map(runs.map(({ key }, position) => [key, runs[position - 1]]));
    const rows = runs.slice(-RUNS_SHOWN).toReversed().map((one) => element("tr", {},
        element("th", { scope: "row" }, element("a", { href: `job?key=${one.key}` }, element("bdi", {}, one.job))),
        element("td", {}, dateText(one.started_us / 1e6).slice(0, 16)),
        ...shown.map((key) => element("td", { className: "number" }, quantityText(key, one[key]))), element("td", {}, ...comparison(one.key, before.get(one.key)))));
    const head = element("tr", {}, element("th", { scope: "col" }, "Job"), element("th", { scope: "col" }, "Start"), ...heads, element("th", { scope: "col" }, "Compare"));
    const caption = runs.length > RUNS_SHOWN ? `The last ${RUNS_SHOWN} of ${runs.length} runs` : "Runs";
    return element("div", { className: "scroll", hidden: runs.length === 0 },
        element("table", { className: "runs" }, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...rows)));
}

/** Creates the form that names the runs. */
function nameForm(query) {
    const input = (name, text) => element("label", {}, element("span", {}, text), element("input", { name, value: query.get(name) ?? "", autocomplete: "off" }));
    return element("form", { className: "filters" }, input("name", "Name of the runs"), input("user", "User, if not you"), element("button", { type: "submit" }, "Show"));
}

run(async () => {
    const query = new URLSearchParams(location.search);
    const { main } = await openPage();
    const heading = element("h1", {}, "Trend");
    if (!query.get("name")) {
        main.append(heading, nameForm(query));
        isReady();
        return isComplete();
    }
    const wanted = Object.fromEntries(["name", "user", "from_us", "until_us"].map((name) => [name, query.get(name) || null]));
    const trend = await get("trend", wanted);
    const owner = trend.user ?? (trend.uid === null ? "" : `uid ${trend.uid}`);
    heading.replaceChildren("Trend of ", element("bdi", {}, trend.name));
    document.title = `Trend of ${trend.name} · Polymeter`;
    const latest = trend.changes[trend.changes.length - 1];
    const facts = [owner ? `of ${owner}` : "", `${trend.runs.length} runs`, trend.left_out > 0 ? `${trend.left_out} others did not finish or have no figures yet` : ""];
    const charts = trendCharts(trend);
    main.append(heading, element("p", { className: `verdict ${latest ? "warning" : "good"}` }, ...verdict(trend)),
        element("p", { className: "soft facts-line" }, element("bdi", {}, facts.filter(Boolean).join(" · "))), changeList(trend), charts, runTable(trend),
        element("details", { className: "figures" }, element("summary", {}, "Other runs"), nameForm(query)));
    charts.begin();
    isReady();
    return isComplete();
});
