// Triggers of a job that fired.

import { dateText, element } from "../shared/text.js";

const FIRINGS_MAX = 20;

/** Returns the list of the triggers that fired, the latest first; `show` fills it. */
export function firingPanel() {
    const list = element("ul", { className: "firings" });
    const panel = element("section", { hidden: true }, element("h2", { id: "firings" }, "Triggers that fired"), list);
    panel.setAttribute("aria-labelledby", "firings");
    panel.show = (firings) => {
        const rows = firings.slice(-FIRINGS_MAX).toReversed().map(({ at_us, text }) =>
            element("li", {}, `${dateText(at_us / 1e6)} `, element("bdi", {}, text)));
        const more = firings.length - rows.length;
        list.replaceChildren(...rows, ...(more > 0 ? [element("li", {}, `and ${more} more`)] : []));
        panel.hidden = firings.length === 0;
    };
    return panel;
}
