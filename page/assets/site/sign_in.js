// The form in which a user enters a token.

import { element } from "../shared/text.js";
import { hasToken, keepToken } from "./session.js";

/** Shows the form in a place. The promise ends when the user has entered a token. */
export function askForToken(place, reason) {
    return new Promise((done) => {
        const field = element("input", { type: "password", id: "token", required: true, autocomplete: "off", spellcheck: false });
        const refused = hasToken() ? "The token is not accepted: " : "";
        const form = element("form", { className: "sign-in" },
            // Before the contents of the page it is the only heading.
            element(document.querySelector("h1") ? "h2" : "h1", {}, "Sign in"),
            element("p", { id: "sign-in-reason" }, `${refused}${reason}`),
            element("label", { htmlFor: "token" }, "Token"),
            element("div", { className: "controls" }, field, element("button", { type: "submit" }, "Sign in")),
            element("p", { className: "remark" }, "The command ", element("code", {}, "polymeter token"),
                " creates one on a login node. It is kept in this tab until you close it, and sent only to this server."));
        field.setAttribute("aria-describedby", "sign-in-reason");
        form.addEventListener("submit", (event) => {
            event.preventDefault();
            keepToken(field.value.trim());
            form.remove();
            done();
        });
        place.replaceChildren(form);
        field.focus();
    });
}
