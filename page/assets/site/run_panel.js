// The panel of a job page about its program: command, directory, host and environment, as far as they are stored.

import { element } from "../shared/text.js";

/** Creates the panel; null if nothing is known. */
export function runPanel(job) {
    const { command, directory, host, environment } = job.run ?? {};
    const text = (value) => (Array.isArray(value) ? value.join(" ") : value);
    const rows = [["Command", text(command)], ["Directory", directory], ["Host", host], ...Object.entries(environment ?? {})].filter(([, value]) => value);
    if (rows.length === 0) return null;
    return element("div", {}, element("h2", {}, "Program"), element("dl", { className: "run-facts" }, ...rows.map(([name, value]) =>
        element("div", {}, element("dt", {}, element("bdi", {}, name)), element("dd", {}, element("code", {}, String(value)))))));
}
