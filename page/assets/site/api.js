// Requests to the HTTP API of the server that sent the page.

import { request, takeFirst } from "./first_requests.js";
import { authenticate } from "./session.js";

const TRIES = 3;

/** An answer that is an error (RFC 9457). */
export class Problem extends Error {
    constructor(status, members) {
        super(members.detail ?? members.title ?? `status ${status}`);
        this.status = status;
        this.code = members.code;
        this.members = members;
    }
}

const pause = (seconds) => new Promise((done) => { setTimeout(done, seconds * 1000); });

/** Returns a path of the API, relative to the page, with those parameters that have a value. */
export function address(path, parameters = {}) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(parameters)) {
        if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
    }
    const text = query.toString();
    return `api/v1/${path}${text ? `?${text}` : ""}`;
}

async function problemOf(response) {
    const members = await response.json().catch(() => ({}));
    return new Problem(response.status, members);
}

/** Sends a request, and returns its response. A user without valid credentials is asked for a token. */
export async function send(url, options = {}) {
    for (let attempt = 1; ; attempt += 1) {
        const response = await (takeFirst(url) ?? request(url, options));
        if (response.ok) return response;
        const problem = await problemOf(response);
        if (response.status === 401) {
            await authenticate(problem.message);
            continue;
        }
        const isBusy = response.status === 429 || response.status === 503;
        if (!isBusy || options.method === "POST" || attempt >= TRIES) throw problem;
        await pause(Math.min(Number(response.headers.get("Retry-After")) || 1, 10));
    }
}

/** Returns the JSON of a resource. */
export async function get(path, parameters, signal) {
    return (await send(address(path, parameters), { signal })).json();
}

/** Sends JSON to a resource, and returns that of the answer. */
export async function post(path, body) {
    const headers = { "Content-Type": "application/json" };
    return (await send(address(path), { method: "POST", headers, body: JSON.stringify(body) })).json();
}
