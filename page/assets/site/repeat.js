// Repeated requests: only while the page is visible, and less often while they fail.

import { notice } from "./frame.js";

const LONGEST_S = 30;

/** The time without an answer after which the page says so, in milliseconds. */
const SLOW_MS = 10_000;

/** The functions that repeat those requests that failed. */
const failed = new Set();

/** Repeats at once what failed, since the collector has returned. */
export function repeatFailed() {
    for (const again of [...failed]) again();
}

/**
 * Runs `action` now and after every `seconds`, which may be a function. The promise ends after the first time: with an error if that fails, unless the
 * page has contents without it.
 */
export async function repeat(seconds, action, { isVital = true } = {}) {
    let failures = 0;
    let timer = null;
    const wait = () => (typeof seconds === "function" ? seconds() : seconds);
    const once = async () => {
        timer = null;
        failed.delete(again);
        const slow = setTimeout(() => notice("connection", `The collector has not answered for ${SLOW_MS / 1000} s: the values are not up to date.`), SLOW_MS);
        try {
            await action();
            failures = 0;
            notice("connection", "");
        } catch (error) {
            failures += 1;
            failed.add(again);
            notice("connection", `The values are not up to date: ${error.message}`);
        } finally {
            clearTimeout(slow);
        }
        next();
    };
    const next = () => {
        if (document.hidden || timer !== null) return;
        timer = setTimeout(once, Math.min(wait() * 2 ** failures, Math.max(wait(), LONGEST_S)) * 1000);
    };
    const again = () => {
        if (timer === null) return;
        clearTimeout(timer);
        failures = 0;
        once();
    };
    document.addEventListener("visibilitychange", () => {
        if (document.hidden) {
            clearTimeout(timer);
            timer = null;
        } else {
            next();
        }
    });
    if (!isVital) return once();
    await action();
    return next();
}
