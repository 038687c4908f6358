// Colours of the canvases: light or dark as the reader prefers, light on paper.

export const prefersDark = matchMedia("(prefers-color-scheme: dark)");
export const onPaper = matchMedia("print");
let printing = false;

/** States whether the page is drawn for paper, whatever the medium. */
export function setPrinting(isPaper) {
    printing = isPaper;
}

/** Returns true if the page is drawn for paper, whatever the medium. */
export function isPrinting() {
    return printing;
}

/** Returns the colours that apply now. */
export function colours() {
    const dark = prefersDark.matches && !onPaper.matches && !printing;
    return dark
        ? { text: "#aeb8c2", grid: "#2b333b", line: "#6cb2eb", range: "rgba(108,178,235,0.24)", low: "#4f7fa8", mark: "#e3a04f", missing: "#1b2127", ink: "#e6ebf0" }
        : { text: "#52606d", grid: "#e4e9ee", line: "#0b62a4", range: "rgba(11,98,164,0.18)", low: "#7fa9cb", mark: "#b35900", missing: "#f1f3f5", ink: "#1c2733" };
}

/** The width of a chart on paper, in pixels: that of A4 and of a letter without margins. */
const PAPER_WIDTH = 670;

/** Adapts a plot to the width of its place. */
export function resizePlot(plot, place) {
    const width = plotWidth(place);
    // Drawing takes time.
    if (plot && plot.width !== width) plot.setSize({ width, height: plot.height });
}

/** Returns the width of a chart in its place. */
export function plotWidth(place) {
    const isPaper = printing || onPaper.matches;
    return Math.max(isPaper ? Math.min(place.clientWidth, PAPER_WIDTH) : place.clientWidth, 200);
}

/** The colours of phases (Okabe and Ito), which differ for readers with any colour vision. */
export const PHASE_COLOURS = ["#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#f0e442", "#0072b2"];

/** Points of the colour map viridis, from the smallest value to the largest. */
const VIRIDIS = [
    [68, 1, 84], [72, 33, 115], [67, 62, 133], [56, 88, 140], [45, 112, 142], [37, 133, 142],
    [30, 155, 138], [42, 176, 127], [82, 197, 105], [134, 213, 73], [194, 223, 35], [253, 231, 37],
];

/** The colours of the colour map, since a heat map has tens of thousands of cells. */
const STEPS_OF_COLOUR = 255;
const COLOURS = [];

/** Returns the colour of a share between 0 and 1. */
export function viridis(share) {
    const step = Math.round(Math.min(Math.max(share, 0), 1) * STEPS_OF_COLOUR);
    COLOURS[step] ??= mixedColour(step / STEPS_OF_COLOUR);
    return COLOURS[step];
}

function mixedColour(share) {
    const position = share * (VIRIDIS.length - 1);
    const low = Math.min(Math.floor(position), VIRIDIS.length - 2);
    const part = position - low;
    const mixed = VIRIDIS[low].map((value, channel) => Math.round(value + part * (VIRIDIS[low + 1][channel] - value)));
    return `rgb(${mixed.join(",")})`;
}
