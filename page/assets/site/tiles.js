// The tiles above the list of jobs: each is a number, and a filter.

import { element, hundredths, plainNumber } from "../shared/text.js";
import { get } from "./api.js";

/** The views of the list that tiles choose, as parameters of the API. */
export const VIEWS = {
    running: { state: "running" },
    failed: { within: "86400", sort: "ended" },
    wasted: { within: "86400", sort: "waste" },
};

const TILES = [
    ["running", "running", () => ""],
    ["failed", "failed or out of memory", () => "in the last day"],
    ["wasted", "core-hours wasted", (figures) => `by ${figures.wasted_jobs} ${figures.wasted_jobs === 1 ? "job" : "jobs"} that ended in the last day`],
];

/** Creates the tiles. `choose` gets the view, or null for all jobs. */
export function tiles(choose) {
    let view = null;
    const made = TILES.map(([id, label, remark]) => {
        const number = element("strong", {}, "–");
        const more = element("small");
        const tile = element("button", { type: "button", className: "tile" }, number, element("span", {}, label), more);
        tile.dataset.view = id;
        tile.addEventListener("click", () => choose(view === id ? null : id));
        return { id, tile, number, more, remark };
    });
    const definition = element("p", { id: "core-hours-wasted" }, "Requested cores × elapsed time, less the CPU time, of the jobs without GPUs that ended in the last day.");
    const place = element("div", { className: "tiles" }, ...made.map(({ tile }) => tile),
        element("details", { className: "remark" }, element("summary", {}, "What counts as wasted"), definition));
    made[2].tile.setAttribute("aria-describedby", definition.id);
    /** Marks the tile of the view. */
    place.choose = (next) => {
        view = next;
        for (const { id, tile } of made) tile.setAttribute("aria-pressed", String(id === next));
    };
    place.load = async () => {
        const figures = await get("overview");
        const text = (count, max) => (count >= max ? `${plainNumber(max)}+` : plainNumber(count));
        const values = { running: text(figures.running, figures.counted_max), failed: text(figures.failed, figures.counted_max), wasted: hundredths(figures.wasted_core_h) };
        for (const { id, tile, number, more, remark } of made) {
            number.textContent = values[id];
            more.textContent = remark(figures);
            tile.classList.toggle("critical", id === "failed" && figures.failed > 0);
        }
        VIEWS.failed.state = figures.failed_states;
        place.dataset.loaded = "true";
    };
    place.choose(null);
    return place;
}
