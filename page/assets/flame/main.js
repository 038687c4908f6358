// The page of a flame graph.
import { showFlame } from "./view.js";

const flamePlace = document.getElementById("flame");
const flameData = document.getElementById("flame-data");
if (flamePlace && flameData) {
    const data = JSON.parse(flameData.textContent);
    const search = showFlame(data, flamePlace);
    addEventListener("keydown", (event) => {
        if (event.key !== "/" || event.target === search) return;
        search.focus();
        event.preventDefault();
    });
    document.documentElement.dataset.flame = String(data.nodes.length);
}
