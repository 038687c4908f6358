// The stream of a running job on its page.

import { clockText } from "../shared/text.js";
import { notice } from "./frame.js";
import { follow } from "./live.js";
import { liveValues } from "./live_values.js";
import { repeatFailed } from "./repeat.js";

/** After an interruption, the values that the agents have kept follow within some seconds. */
const KEPT_S = 15;

/** Draws the values of the job's stream, and tells what else has changed. Returns true from `isConnected` while they arrive. */
export function followValues(job, charts, changed) {
    const values = liveValues();
    const metrics = () => [...new Set(charts.chosen().flatMap(({ terms }) => terms.map(({ metric }) => metric)))];
    let isFirst = true;
    let drawing = null;
    let latest_us = 0;
    // The collector's clock less that of the browser.
    let ahead_us = 0;
    // The values of many nodes come in several events.
    const draw = (time_us) => {
        latest_us = time_us;
        drawing ??= requestAnimationFrame(() => { drawing = null; charts.extend(values, latest_us); });
    };
    const stream = follow(job, metrics, ({ name, data }) => {
        if (name === "series") values.describe(data.series);
        else if (name === "values") draw(values.add(data));
        else if (name !== "job") changed(name, data);
        // What was missed between two streams is in the store.
        else if (!isFirst) charts.update();
        if (name === "job") {
            isFirst = false;
            ahead_us = data.now_us - Date.now() * 1000;
        }
    }, (isThere) => {
        if (!isThere) {
            const since = clockText(Date.now() / 1000, 1);
            return notice("connection", `No connection to the collector since ${since}. These are the last values that arrived; the page tries to connect again.`);
        }
        notice("connection", "");
        repeatFailed();
        return setTimeout(() => charts.update(), KEPT_S * 1000);
    });
    charts.onChoice = stream.renew;
    /** Returns the age of the newest value in seconds; null while none arrive. */
    stream.age_s = () => (stream.isConnected() && latest_us > 0 ? (Date.now() * 1000 + ahead_us - latest_us) / 1e6 : null);
    return stream;
}
