// Phases and marks of a job, for the charts.

/** Pairs the begins and ends of phases by node and name. A phase without end lasts until `end_s`. */
function phasesOf(marks, end_s) {
    const open = new Map();
    const phases = [];
    for (const { at_s, node, name, kind } of marks) {
        const key = JSON.stringify([node, name]);
        if (kind === "begin") open.set(key, { name, begin_s: at_s });
        if (kind !== "end" || !open.has(key)) continue;
        phases.push({ ...open.get(key), end_s: at_s });
        open.delete(key);
    }
    return [...phases, ...[...open.values()].map((phase) => ({ ...phase, end_s }))];
}

/** Joins the phases of a name that overlap: those of several nodes. */
function joined(phases) {
    const bands = [];
    const last = new Map();
    for (const phase of phases.toSorted((one, other) => one.begin_s - other.begin_s)) {
        const band = last.get(phase.name);
        if (band && phase.begin_s <= band.end_s) {
            band.end_s = Math.max(band.end_s, phase.end_s);
            continue;
        }
        const made = { ...phase };
        last.set(phase.name, made);
        bands.push(made);
    }
    return bands;
}

/** Returns kept intervals as bands, in seconds since the start of the job: one for those of a trigger on several nodes. */
export function keptBands(intervals, started_us) {
    const bands = new Map();
    for (const { begin_us, end_us, trigger, reason } of intervals) {
        const [begin_s, end_s] = [begin_us, end_us].map((us) => (us - started_us) / 1e6);
        const band = bands.get(trigger) ?? { name: `kept: ${reason}`, begin_s, end_s };
        bands.set(trigger, { ...band, begin_s: Math.min(band.begin_s, begin_s), end_s: Math.max(band.end_s, end_s) });
    }
    return [...bands.values()].sort((one, other) => one.begin_s - other.begin_s);
}

/** Returns triggers that fired as marks, in seconds since the start of the job. */
export function firingMarks(firings, started_us) {
    return firings.map(({ time_us, rule, why }) => ({ name: `trigger ${rule}: ${why}`, at_s: (time_us - started_us) / 1e6 }));
}

/** Returns the bands and the marks of the charts, in seconds since the start of the job. */
export function bandsOf(rows, started_us, end_s) {
    const marks = rows.map((row) => ({ ...row, at_s: (row.time_us - started_us) / 1e6 })).sort((one, other) => one.at_s - other.at_s);
    return { bands: joined(phasesOf(marks, end_s)), marks: marks.filter(({ kind }) => kind === "instant") };
}
