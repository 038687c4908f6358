// Tabs: one of several panels is visible. The arrow keys move between the tabs, and the address may name one.

import { element } from "../shared/text.js";

/** Creates the tabs of panels, `{ id, title, contents, shown }`: `shown()` is called whenever the panel becomes visible. */
export function tabs(name, panels) {
    const list = element("div", { role: "tablist", className: "tabs" });
    list.setAttribute("aria-label", name);
    const made = panels.map(({ id, title, contents }) => {
        const tab = element("button", { type: "button", id: `tab-${id}`, role: "tab" }, title);
        tab.setAttribute("aria-controls", id);
        const panel = element("section", { id, role: "tabpanel" }, contents);
        panel.setAttribute("aria-labelledby", tab.id);
        list.append(tab);
        return { id, tab, panel };
    });
    const place = element("div", { className: "tabbed" }, list, ...made.map(({ panel }) => panel));
    const show = (position) => {
        made.forEach(({ tab, panel }, other) => {
            const isShown = other === position;
            tab.setAttribute("aria-selected", String(isShown));
            tab.tabIndex = isShown ? 0 : -1;
            panel.hidden = !isShown;
        });
        place.dataset.shown = made[position].id;
        panels[position].shown?.();
    };
    made.forEach(({ tab }, position) => tab.addEventListener("click", () => show(position)));
    list.addEventListener("keydown", (event) => {
        const now = made.findIndex(({ tab }) => tab === document.activeElement);
        const next = { ArrowRight: (now + 1) % made.length, ArrowLeft: (now + made.length - 1) % made.length, Home: 0, End: made.length - 1 }[event.key];
        if (next === undefined || now < 0) return;
        event.preventDefault();
        show(next);
        made[next].tab.focus();
    });
    const named = () => made.findIndex(({ id }) => location.hash === `#${id}`);
    addEventListener("hashchange", () => { if (named() >= 0) show(named()); });
    show(Math.max(named(), 0));
    return place;
}
