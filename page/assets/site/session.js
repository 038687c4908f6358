// The token of the user: kept for this tab only, and sent as a header, never as a cookie.

import { TOKEN_KEY } from "./first_requests.js";

let asked = null;

/** Returns true if the user has signed in with a token. */
export function hasToken() {
    return sessionStorage.getItem(TOKEN_KEY) !== null;
}

export function keepToken(token) {
    sessionStorage.setItem(TOKEN_KEY, token);
}

/** Forgets the token, and loads the page anew. */
export function signOut() {
    sessionStorage.removeItem(TOKEN_KEY);
    location.reload();
}

let askUser = null;

/** Sets the function that asks the user for a token: it gets the reason, and its promise ends when there is one. */
export function onUnauthenticated(ask) {
    askUser = ask;
}

/** Asks the user for a token, once for all requests that wait for it. */
export async function authenticate(reason) {
    if (!askUser) throw new Error(reason);
    asked ??= askUser(reason).finally(() => { asked = null; });
    return asked;
}
