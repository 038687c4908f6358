// The difference of the functions of two jobs.

import { showFlame } from "../flame/view.js";
import { element } from "../shared/text.js";
import { get } from "./api.js";
import { idText } from "./job_text.js";

/** Returns a section with the difference of two jobs, hidden unless both have call stacks; and a promise of its contents. */
export function comparedFunctions(before, after) {
    const place = element("div");
    const section = element("section", { hidden: true }, element("h2", { id: "functions" }, "Where the time went"),
        element("p", { className: "soft" }, "Before: job ", element("bdi", {}, idText(before)), ". After: job ", element("bdi", {}, idText(after)),
            ". Orange functions have a larger share than before, blue ones a smaller."), place);
    section.setAttribute("aria-labelledby", "functions");
    const load = async () => {
        const data = await get(`jobs/${after.key}/stacks`, { against: before.key });
        if (!data.compared_us.every((time_us) => time_us > 0)) return;
        section.hidden = false;
        showFlame(data, place);
    };
    return { section, loaded: load() };
}
