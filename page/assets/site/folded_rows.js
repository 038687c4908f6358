// Long lists on a phone: the first rows, and a button for all of them.

import { element } from "../shared/text.js";

const ROWS = 12;

const isNarrow = matchMedia("(max-width: 46rem)");

/** Creates the button. Its method `fold` takes the rows of the list whenever they change. */
export function foldedRows() {
    let rows = [];
    let areAllShown = false;
    const button = element("button", { type: "button", hidden: true });
    const apply = () => {
        const shown = isNarrow.matches && !areAllShown ? ROWS : rows.length;
        rows.forEach((row, position) => { row.hidden = position >= shown; });
        button.hidden = rows.length <= shown;
        button.textContent = `Show all ${rows.length}`;
    };
    button.addEventListener("click", () => {
        areAllShown = true;
        apply();
        rows[ROWS]?.querySelector("a, button")?.focus();
    });
    isNarrow.addEventListener("change", apply);
    button.fold = (next) => { rows = next; apply(); };
    return button;
}
