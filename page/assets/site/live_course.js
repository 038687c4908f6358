// Live values behind the stored course of a chart.

/** Times without samples are a gap if they are more than so many usual distances long. */
const GAP = 3;

/** Time for which values may be under way to the store, in seconds: it is no gap. */
const DELAY_S = 3;

/** Step to the next value, in seconds. */
const STEP_S = 1e-3;

/** Removes the times at the end that have no value yet, unless a value at `at_s` follows after a gap. */
function join({ times, lines, part_s, distance }, at_s) {
    let end = times.length;
    while (end > 0 && lines[1][end - 1] === null) end -= 1;
    const isGap = at_s - (times[end - 1] ?? at_s) > Math.max(DELAY_S, GAP * (distance ?? 1) * (part_s ?? 0));
    if (isGap) return;
    times.length = end;
    for (const line of lines) line.length = end;
}

/** Counts a value in the figures of a course. */
function count(course, [low, middle, high], before_s, at_s) {
    const { min, mean, max } = course.extent;
    const [known_s, new_s] = [Math.max(before_s - course.begin_s, 0), at_s - before_s];
    course.extent = {
        min: min === null ? low : Math.min(min, low),
        mean: mean === null ? middle : (mean * known_s + middle * new_s) / (known_s + new_s),
        max: max === null ? high : Math.max(max, high),
    };
}

/**
 * Appends least, middle and largest value of a time to a course, as the stored ones are drawn: where these are samples, a value holds until the next
 * one, and a rate since the one before. `isFirst` is true for the first live value of a stored course. Returns false for a time that is not later.
 */
export function append(course, at_s, values, isRate, isFirst) {
    const { times, lines } = course;
    if (isFirst && values[1] !== null) join(course, at_s);
    const last = times.length - 1;
    if (at_s <= (times[last] ?? -1)) return false;
    const before = lines.map((line) => line[last] ?? null);
    const put = (time, point) => {
        times.push(time);
        lines.forEach((line, number) => line.push(point[number]));
    };
    if (course.isRaw && before[1] !== null && values[1] !== null && at_s - times[last] > 2 * STEP_S) {
        if (isRate) put(times[last] + STEP_S, values);
        else put(at_s - STEP_S, before);
    }
    if (values[1] !== null) count(course, values, times[last] ?? course.begin_s, at_s);
    put(at_s, values);
    return true;
}
