// The stream of a running job's values and events. It ends while the page is hidden, and is opened again after an interruption.

import { address, send } from "./api.js";
import { readEvents } from "./event_stream.js";

const RETRY_MS = 1000;
const LONGEST_RETRY_MS = 30_000;

/** The time after which a silent collector does not work any more, in milliseconds: it sends a comment every 5 s. */
const SILENCE_MS = 15_000;

/** Reasons for the end of a stream after which there is no other one. */
const FINAL = ["ended", "gone"];

/** Statuses of a proxy whose collector is away. */
const AWAY = [502, 503, 504];

/**
 * Follows a job. `handle` gets each event; `metrics` returns the metrics whose values are wanted. `isConnected()` of the result tells whether values
 * arrive; without them the page must ask. `onChange` is called with false when the collector is lost, and with true when it has returned.
 */
export function follow(job, metrics, handle, onChange) {
    let stop = null;
    let isOpen = false;
    let isOver = false;
    let isLost = false;
    let delay = RETRY_MS;
    let timer = null;

    const change = (lost) => {
        if (lost === isLost) return;
        isLost = lost;
        onChange(!lost);
    };
    const open = async () => {
        clearTimeout(timer);
        if (stop || isOver || document.hidden) return;
        const own = new AbortController();
        const { signal } = own;
        stop = own;
        let end = null;
        let isSilent = false;
        let watch = null;
        const heard = () => {
            clearTimeout(watch);
            watch = setTimeout(() => { isSilent = true; own.abort(); }, SILENCE_MS);
        };
        heard();
        try {
            const url = address(`jobs/${job.key}/live`, { metric: metrics().join(","), per_second: 1 });
            const response = await send(url, { signal, headers: { Accept: "text/event-stream" } });
            change(false);
            if (response.status === 204) {
                isOver = true;
                handle({ name: "end", data: { reason: "ended" } });
                return;
            }
            isOpen = true;
            delay = RETRY_MS;
            await readEvents(response, (event) => {
                if (event.name === "end") end = event.data.reason;
                if (FINAL.includes(end)) isOver = true;
                handle(event);
            }, heard);
            // A stream that ends without a reason has lost its collector.
            if (end === null || end === "stopping") change(true);
        } catch (error) {
            // A job that is gone: the page asks for values as long as it can.
            if (!signal.aborted && (error.status === 404 || error.status === 406)) isOver = true;
            else if (isSilent || (!signal.aborted && (!error.status || AWAY.includes(error.status)))) change(true);
            delay = Math.min(delay * 2, LONGEST_RETRY_MS);
        } finally {
            clearTimeout(watch);
            isOpen = false;
            if (stop === own) stop = null;
        }
        // Pages that have lost their collector at once do not return at once.
        if (!isOver && (isSilent || !signal.aborted)) timer = setTimeout(open, delay * (0.75 + Math.random() / 2));
    };
    const close = () => {
        stop?.abort();
        stop = null;
    };
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
    addEventListener("online", open);
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
