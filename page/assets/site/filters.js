// The search in the list of jobs: chips, which are in the address of the page, so that a list can be linked to.

import { element } from "../shared/text.js";

const FIELDS = [
    ["name", "Name"], ["id", "Job id"], ["user", "User"], ["state", "State"], ["account", "Account"], ["queue", "Queue"], ["node", "Node"], ["cluster", "Cluster"],
];
const STATES = ["running", "ended", "completed", "failed", "timeout", "out_of_memory", "cancelled", "node_fail"];
const TIMES = [["", "any time"], ["3600", "the last hour"], ["86400", "the last day"], ["604800", "the last week"], ["2592000", "the last 30 days"]];
/** What else is in the address: the tile that is pressed, and the order. */
const OTHERS = ["within", "view", "sort", "order"];

/** Returns the filters in the address of the page. */
export function filtersOfAddress() {
    const query = new URLSearchParams(location.search);
    const known = [...FIELDS.map(([name]) => name), ...OTHERS].filter((name) => query.get(name));
    return Object.fromEntries(known.map((name) => [name, query.get(name)]));
}

/** Writes the filters to the address of the page. */
export function keepInAddress(filters) {
    const known = Object.entries(filters).filter(([, value]) => value);
    history.replaceState(null, "", known.length > 0 ? `?${new URLSearchParams(known)}` : location.pathname);
}

/** Returns the parameters of the API for the chips and the time. */
export function parametersOf({ within, view: _view, ...filters }) {
    const from = within ? { from_us: Math.round((Date.now() / 1000 - Number(within)) * 1e6) } : {};
    return { ...filters, ...from };
}

/** Returns the field and the value of a text: `field:value`, or the field that such a value usually has. */
export function parsedSearch(text, fields) {
    const value = text.trim();
    const [, field, rest] = /^([a-z]+)\s*[:=]\s*(.+)$/i.exec(value) ?? [];
    if (field && fields.includes(field.toLowerCase())) return [field.toLowerCase(), rest.trim()];
    if (/^\d+([_+]\d+)?$/.test(value)) return ["id", value];
    return [STATES.includes(value.toLowerCase()) ? "state" : "name", value];
}

/** Creates the search. `changed` gets the filters. Without administration there is none by user. */
export function searchBar(first, isAdministrator, changed) {
    let filters = first;
    const fields = FIELDS.filter(([name]) => isAdministrator || name !== "user");
    const names = fields.map(([name]) => name);
    const field = element("select", {}, element("option", { value: "" }, "Any"), ...fields.map(([name, label]) => element("option", { value: name }, label)));
    field.setAttribute("aria-label", "Field to search");
    const text = element("input", { type: "search", maxLength: 200, autocomplete: "off", placeholder: `name, id, ${isAdministrator ? "user, " : ""}state …` });
    text.setAttribute("aria-label", "Search jobs");
    text.setAttribute("list", "states");
    const within = element("select", {}, ...TIMES.map(([value, label]) => element("option", { value }, label)));
    within.setAttribute("aria-label", "Time");
    const chips = element("ul", { className: "chips" });
    chips.setAttribute("aria-label", "Filters");
    const form = element("form", { className: "search", role: "search" }, field, text, element("button", { type: "submit" }, "Search"), within, chips,
        element("datalist", { id: "states" }, ...STATES.map((value) => element("option", { value }))));
    form.setAttribute("aria-label", "Jobs");
    const apply = (next) => {
        filters = next;
        form.show(next);
        changed(next);
    };
    /** Shows filters that something else has changed. */
    form.show = (next) => {
        filters = next;
        within.value = next.within ?? "";
        chips.replaceChildren(...fields.filter(([name]) => next[name]).map(([name, label]) => {
            const button = element("button", { type: "button" }, `${label}: `, element("bdi", {}, next[name]), element("span", { "aria-hidden": "true" }, " ×"));
            button.setAttribute("aria-label", `Remove the filter ${label} ${next[name]}`);
            button.addEventListener("click", () => {
                const { [name]: _removed, ...rest } = filters;
                apply(rest);
                text.focus();
            });
            return element("li", {}, button);
        }));
        chips.hidden = chips.childNodes.length === 0;
    };
    form.addEventListener("submit", (event) => {
        event.preventDefault();
        if (!text.value.trim()) return;
        const [name, value] = field.value ? [field.value, text.value.trim()] : parsedSearch(text.value, names);
        text.value = "";
        apply({ ...filters, [name]: value });
    });
    within.addEventListener("change", () => apply({ ...filters, within: within.value }));
    form.show(filters);
    return form;
}
