// A bound on requests in progress: those of one user are limited, and other parts of a page need some of them.

/** Returns a function that runs asynchronous work, at most `limit` at a time, in the order of the calls. */
export function limited(limit) {
    const waiting = [];
    let running = 0;
    const next = () => {
        if (running >= limit || waiting.length === 0) return;
        running += 1;
        const { work, done, failed } = waiting.shift();
        // Work that fails before it begins releases its place, too.
        Promise.resolve().then(work).then(done, failed).finally(() => {
            running -= 1;
            next();
        });
    };
    return (work) => new Promise((done, failed) => {
        waiting.push({ work, done, failed });
        next();
    });
}
