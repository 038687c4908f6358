// Server-sent events that are read with `fetch`, since `EventSource` cannot send a token.

/** Splits text into events. Returns the events that are complete, and the rest. */
export function splitEvents(text) {
    const blocks = text.replaceAll("\r\n", "\n").split("\n\n");
    const rest = blocks.pop();
    const events = [];
    for (const block of blocks) {
        const fields = block.split("\n").filter((line) => line && !line.startsWith(":")).map((line) => {
            const colon = line.indexOf(":");
            return colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
        });
        const data = fields.filter(([name]) => name === "data").map(([, value]) => value);
        const name = fields.findLast(([field]) => field === "event")?.[1] ?? "message";
        if (data.length > 0) events.push({ name, data: JSON.parse(data.join("\n")) });
    }
    return { events, rest };
}

/** Calls `handle` with each event of a response until it ends, and `heard` whenever something arrives, be it a comment. */
export async function readEvents(response, handle, heard = () => {}) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        heard();
        const { events, rest } = splitEvents(text + value);
        text = rest;
        events.forEach(handle);
    }
}
