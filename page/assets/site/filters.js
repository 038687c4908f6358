// The filters of the list of jobs. They are in the address of the page, so that a list can be linked to.

import { element } from "../shared/text.js";

const FIELDS = [
    ["id", "Job id"], ["user", "User"], ["account", "Account"], ["queue", "Queue"], ["node", "Node"], ["state", "State"],
];
const STATES = ["running", "ended", "COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "NODE_FAIL"];
const TIMES = [["", "any time"], ["3600", "the last hour"], ["86400", "the last day"], ["604800", "the last week"], ["2592000", "the last 30 days"]];

/** Returns the filters in the address of the page. */
export function filtersOfAddress() {
    const query = new URLSearchParams(location.search);
    const known = [...FIELDS.map(([name]) => name), "within"].filter((name) => query.get(name));
    return Object.fromEntries(known.map((name) => [name, query.get(name)]));
}

/** Returns the parameters of the API for filters. */
export function parametersOf({ within, ...filters }) {
    const from = within ? { from_us: Math.round((Date.now() / 1000 - Number(within)) * 1e6) } : {};
    return { ...filters, ...from };
}

/** Creates the form. `changed` gets the filters. Without administration there is no filter by user. */
export function filterForm(filters, isAdministrator, changed) {
    const fields = FIELDS.filter(([name]) => isAdministrator || name !== "user").map(([name, label]) => {
        const field = element("input", { type: "search", name, value: filters[name] ?? "", maxLength: 256, autocomplete: "off" });
        if (name === "state") field.setAttribute("list", "states");
        return element("label", {}, element("span", {}, label), field);
    });
    const within = element("select", { name: "within" }, ...TIMES.map(([value, text]) => element("option", { value }, text)));
    within.value = filters.within ?? "";
    const clear = element("button", { type: "button" }, "Clear");
    const form = element("form", { className: "filters", role: "search" }, ...fields,
        element("label", {}, element("span", {}, "Time"), within),
        element("datalist", { id: "states" }, ...STATES.map((value) => element("option", { value }))),
        element("div", { className: "controls" }, element("button", { type: "submit" }, "Filter"), clear));
    form.setAttribute("aria-label", "Jobs");
    const apply = () => {
        const chosen = [...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);
        history.replaceState(null, "", `?${new URLSearchParams(chosen)}`);
        changed(Object.fromEntries(chosen));
    };
    form.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
    within.addEventListener("change", apply);
    clear.addEventListener("click", () => {
        for (const field of form.elements) if ("value" in field && field.name) field.value = "";
        apply();
    });
    return form;
}

/** Returns a box around the form, which is closed at first where there is little room. */
export function filterBox(form, filters) {
    const isOpen = Object.keys(filters).length > 0 || !matchMedia("(max-width: 46rem)").matches;
    return element("details", { className: "filter-box", open: isOpen }, element("summary", {}, "Filter"), form);
}
