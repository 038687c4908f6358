// The stream of a running job's values and events. It ends while the page is hidden, and is opened again after an interruption.

import { address, send } from "./api.js";
import { readEvents } from "./event_stream.js";

/** The resource of the stream in the document of the API: older collectors lack it. */
const RESOURCE = "/api/v1/jobs/{key}/live";

const RETRY_MS = 5000;
const LONGEST_RETRY_MS = 60_000;

/** Reasons for the end of a stream after which there is no other one. */
const FINAL = ["ended", "gone"];

/**
 * Follows a job. `handle` gets each event; `metrics` returns the metrics whose values are wanted. `isConnected()` of the result tells whether values
 * arrive; without them the page must ask.
 */
export function follow(job, metrics, handle) {
    let stop = null;
    let isOpen = false;
    let isOver = false;
    let isKnown = false;
    let delay = RETRY_MS;

    const hasStream = async () => Object.hasOwn((await (await send("api/openapi.json")).json()).paths, RESOURCE);
    const open = async () => {
        if (stop || isOver || document.hidden) return;
        stop = new AbortController();
        const { signal } = stop;
        try {
            if (!isKnown && !(await hasStream())) {
                isOver = true;
                return;
            }
            isKnown = true;
            const url = address(`jobs/${job.key}/live`, { metric: metrics().join(","), per_second: 1 });
            const response = await send(url, { signal, headers: { Accept: "text/event-stream" } });
            if (response.status === 204) {
                isOver = true;
                handle({ name: "end", data: { reason: "ended" } });
                return;
            }
            isOpen = true;
            delay = RETRY_MS;
            await readEvents(response, (event) => {
                if (event.name === "end" && FINAL.includes(event.data.reason)) isOver = true;
                handle(event);
            });
        } catch (error) {
            // A job that is gone: the page asks for values as long as it can.
            if (!signal.aborted && (error.status === 404 || error.status === 406)) isOver = true;
            delay = Math.min(delay * 2, LONGEST_RETRY_MS);
        } finally {
            isOpen = false;
            if (stop?.signal === signal) stop = null;
        }
        if (!isOver && !signal.aborted) setTimeout(open, delay);
    };
    const close = () => {
        stop?.abort();
        stop = null;
    };
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
    open();
    return {
        isConnected: () => isOpen,
        /** Opens the stream anew, for other metrics. */
        renew: () => {
            close();
            open();
        },
    };
}
