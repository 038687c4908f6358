// The token of the user: kept for this tab only, and sent as a header, never as a cookie.

const KEY = "polymeter-token";
let asked = null;

/** Returns the headers that authenticate a request. Without a token the connection or a proxy names the user. */
export function credentials() {
    const token = sessionStorage.getItem(KEY);
    return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Returns true if the user has signed in with a token. */
export function hasToken() {
    return sessionStorage.getItem(KEY) !== null;
}

export function keepToken(token) {
    sessionStorage.setItem(KEY, token);
}

/** Forgets the token, and loads the page anew. */
export function signOut() {
    sessionStorage.removeItem(KEY);
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
