// Faults of the present page that a computed style shows: called with the page's document, returns sentences.
() => {
    const faults = [];
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    /** Returns red, green, blue and opacity of a colour in any notation. */
    const channels = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
        return { rgb: [red, green, blue], alpha: alpha / 255 };
    };
    const over = (front, back) => front.rgb.map((value, number) => value * front.alpha + back[number] * (1 - front.alpha));
    const luminance = (rgb) => {
        const [red, green, blue] = rgb.map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const contrast = (one, other) => {
        const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const background = (element) => {
        const layers = [];
        for (let at = element; at; at = at.parentElement) {
            const layer = channels(getComputedStyle(at).backgroundColor);
            if (layer.alpha > 0) layers.unshift(layer);
            if (layer.alpha === 1) break;
        }
        return layers.reduce((back, layer) => over(layer, back), channels("canvas").rgb);
    };
    const isShown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && element.getClientRects().length > 0;

    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const seen = new Set();
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || seen.has(element) || !isShown(element)) continue;
        seen.add(element);
        // Controls that cannot be used are exempt (WCAG 1.4.3), and hidden options are drawn by the system.
        if (element.closest("script, style, noscript, option, [disabled]")) continue;
        const style = getComputedStyle(element);
        const size = parseFloat(style.fontSize);
        const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
        const back = background(element);
        const ratio = contrast(over(channels(style.color), back), back);
        if (ratio < (isLarge ? 3 : 4.5)) faults.push(`contrast ${ratio.toFixed(2)} of "${texts.currentNode.data.trim().slice(0, 40)}" in ${element.tagName}.${element.className}`);
    }

    for (const table of document.querySelectorAll("table")) {
        if (!isShown(table)) continue;
        const label = document.getElementById(table.getAttribute("aria-labelledby") ?? "")?.textContent ?? table.caption?.textContent ?? "";
        if (!label.trim()) faults.push(`a table has no name: ${table.className} ${table.textContent.slice(0, 40)}`);
        for (const head of table.querySelectorAll("th")) if (!head.scope) faults.push(`a head of a table has no scope: ${head.textContent}`);
        if (table.querySelectorAll("th").length === 0) faults.push(`a table has no heads: ${label}`);
    }
    const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
    for (const id of ids.filter((id, position) => ids.indexOf(id) !== position)) faults.push(`two elements have the id ${id}`);
    for (const element of document.querySelectorAll("[aria-labelledby], [aria-describedby], [aria-details], [aria-controls]")) {
        for (const name of ["aria-labelledby", "aria-describedby", "aria-details", "aria-controls"]) {
            const target = element.getAttribute(name);
            if (target && !target.split(" ").every((id) => document.getElementById(id))) faults.push(`${name}="${target}" leads nowhere`);
        }
    }
    const motion = [...document.querySelectorAll("*")].filter((element) => {
        const style = getComputedStyle(element);
        return [style.transitionDuration, style.animationDuration].some((times) => times.split(",").some((time) => parseFloat(time) > 0));
    });
    if (matchMedia("(prefers-reduced-motion: reduce)").matches && motion.length > 0) faults.push(`${motion.length} elements move, such as ${motion[0].tagName}`);
    if (document.querySelectorAll("[role=status], [aria-live], output").length === 0) faults.push("no live region");
    if (!document.documentElement.lang) faults.push("the document has no language");
    return faults;
}
