// The credentials of the user, and the requests that a page needs first: they are under way while its other modules arrive. This module imports
// nothing, and is loaded by itself.

/** The place of the token, for this tab only. */
export const TOKEN_KEY = "polymeter-token";

/** Returns the headers that authenticate a request. Without a token the connection or a proxy names the user. */
export function credentials() {
    const token = sessionStorage.getItem(TOKEN_KEY);
    return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Sends a request for JSON, and returns the promise of its response. */
export function request(url, { headers, ...options } = {}) {
    return fetch(url, { ...options, headers: { Accept: "application/json", ...headers, ...credentials() }, cache: "no-store", redirect: "error" });
}

const sent = new Map();

/** Returns the promise of the response to a request that was sent at the start of the page, if there is one: once. */
export function takeFirst(url) {
    const response = sent.get(url);
    sent.delete(url);
    return response;
}

/** Returns the resources that a page asks for first. The first quantity of a job is drawn before the others are known. */
function firstResources() {
    const key = new URLSearchParams(location.search).get("key") ?? "";
    const isJob = location.pathname.endsWith("/job") && /^\d+$/.test(key);
    return ["whoami", ...(isJob ? [`jobs/${key}`, `jobs/${key}/metrics`, `jobs/${key}/course?quantity=cores`] : [])];
}

for (const resource of firstResources()) {
    const url = `api/v1/${resource}`;
    const response = request(url);
    // The page that takes it handles its failure.
    response.catch(() => {});
    sent.set(url, response);
}
