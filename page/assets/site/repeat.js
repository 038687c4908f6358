// Repeated requests: only while the page is visible, and less often while they fail.

import { notice } from "./frame.js";

const LONGEST_S = 60;

/** Runs `action` now and after every `seconds`, which may be a function. The promise ends after the first time. */
export async function repeat(seconds, action) {
    let failures = 0;
    let timer = null;
    const wait = () => (typeof seconds === "function" ? seconds() : seconds);
    const once = async () => {
        timer = null;
        try {
            await action();
            failures = 0;
            notice("connection", "");
        } catch (error) {
            failures += 1;
            notice("connection", `The values are not up to date: ${error.message}`);
        }
        next();
    };
    const next = () => {
        if (document.hidden || timer !== null) return;
        timer = setTimeout(once, Math.min(wait() * 2 ** failures, LONGEST_S) * 1000);
    };
    document.addEventListener("visibilitychange", () => {
        if (document.hidden) {
            clearTimeout(timer);
            timer = null;
        } else {
            next();
        }
    });
    await action();
    next();
}
