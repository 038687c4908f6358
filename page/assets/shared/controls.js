// The controls of the axis of time, and the legend of the phases.

import { drawing, element, zoneText } from "./text.js";

/** Creates the controls of the axis of time. */
export function axisControls(data, axis, redraw) {
    const button = (text, label, action) => {
        const made = element("button", { type: "button", title: label }, text);
        made.setAttribute("aria-label", label);
        made.addEventListener("click", action);
        return made;
    };
    const reset = button("All", "Show the whole time", axis.reset);
    const clock = element("select", {},
        element("option", { value: "clock" }, `clock, ${zoneText(data.begin_s)}`),
        element("option", { value: "start" }, "since the start"));
    clock.addEventListener("change", () => { axis.isClock = clock.value === "clock"; redraw(); });
    const range = element("output", { className: "range" });
    axis.listeners.push(() => {
        reset.disabled = axis.isFull();
        range.textContent = axis.isFull() ? "" : `${axis.text(axis.range[0])} to ${axis.text(axis.range[1])}`;
    });
    const bar = element("div", { className: "controls toolbar", role: "toolbar" },
        button("+", "Zoom in", () => axis.zoom(0.5)),
        button("−", "Zoom out", () => axis.zoom(2)),
        button("←", "Earlier", () => axis.move(-0.5)),
        button("→", "Later", () => axis.move(0.5)),
        reset,
        element("label", {}, "Time ", clock),
        range);
    bar.setAttribute("aria-label", "Time axis of all charts");
    return bar;
}

/** Lists the phases with their colours. */
export function phaseLegend(data) {
    const names = [...data.phaseColours.keys()];
    const items = names.slice(0, 40).map((name) => {
        const chip = drawing("svg", { viewBox: "0 0 10 10", class: "chip", "aria-hidden": "true" },
            drawing("rect", { width: 10, height: 10, fill: data.phaseColours.get(name) }));
        return element("li", {}, chip, element("bdi", {}, name));
    });
    if (names.length > 40) items.push(element("li", {}, `and ${names.length - 40} more`));
    const list = element("ul", { className: "phases" }, ...items);
    list.setAttribute("aria-label", "Phases");
    return list;
}
