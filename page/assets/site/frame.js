// The parts that all pages share: the account, notices, and the present page in the navigation.

import { element } from "../shared/text.js";
import { get } from "./api.js";
import { hasToken, onUnauthenticated, signOut } from "./session.js";
import { askForToken } from "./sign_in.js";

const notices = document.getElementById("notices");
const main = document.getElementById("main");

/** Prepares the page, and returns the place of its contents and the user. */
export async function openPage() {
    for (const link of document.querySelectorAll("nav a, footer a")) {
        if (new URL(link.href).pathname === location.pathname) link.setAttribute("aria-current", "page");
    }
    const form = element("div", { id: "sign-in" });
    notices.after(form);
    onUnauthenticated((reason) => askForToken(form, reason));
    const user = await get("whoami");
    // Users without a role see no jobs but their own.
    document.body.classList.toggle("own-jobs", user.role === "user");
    if (user.sees_all) {
        document.querySelector("nav").append(document.querySelector("footer a"));
        document.querySelector("footer").hidden = true;
    }
    const name = user.user ?? `uid ${user.uid}`;
    const roles = { administrator: "administrator", support: "support", manager: `manager of ${user.accounts.join(", ")}` };
    const rights = [roles[user.role], mayChange(user) ? "" : "reads only"].filter(Boolean);
    document.getElementById("account").replaceChildren(element("bdi", {}, name), rights.length ? ` · ${rights.join(", ")}` : "");
    if (hasToken()) {
        const button = element("button", { type: "button" }, "Sign out");
        button.addEventListener("click", signOut);
        document.getElementById("account").append(" ", button);
    }
    return { main, user };
}

/** Returns true if the user's token, if there is one, permits changes. */
export function mayChange(user) {
    return user.scope === "control" || user.scope === "admin";
}

/** Shows a notice, or removes that with the same key if there is no text. */
export function notice(key, text) {
    const known = [...notices.children].find((one) => one.dataset.key === key);
    if (!text) return known?.remove();
    if (known?.textContent === text) return;
    const made = element("p", { className: "notice" }, text);
    made.dataset.key = key;
    if (known) known.replaceWith(made);
    else notices.append(made);
}

/** Runs a page, and shows the error that ends it. */
export function run(page) {
    page().catch((error) => {
        if (!main.querySelector("h1")) main.append(element("h1", {}, error.status === 404 ? "Not found" : "Error"));
        notice("failed", `The page cannot be shown: ${error.message}`);
        document.documentElement.dataset.ready = "failed";
        if (!error.status) throw error;
    });
}

/** States that the first contents of the page are there. */
export function isReady() {
    document.documentElement.dataset.ready = "true";
    performance.mark("polymeter-ready");
}

/** States that all contents of the page are there. */
export function isComplete() {
    document.documentElement.dataset.complete = "true";
    performance.mark("polymeter-complete");
}
