// Samples in equal parts of the time, as columns: one value for each part, null where there are no samples.

/** Parts without samples are a gap if they are more than so many usual distances long. */
const GAP = 3;

/** The distances on each side of one among which the usual distance is found: the period may change while a job runs. */
const AROUND = 3;

function medianOf(numbers) {
    const sorted = numbers.toSorted((one, other) => one - other);
    return sorted.length > 0 ? sorted[sorted.length >> 1] : 1;
}

/** Returns the distances between ascending positions. */
function distancesOf(positions) {
    return positions.slice(1).map((position, number) => position - positions[number]);
}

/** Returns the number of parts of an answer. */
export function countOf(answer) {
    return Math.max(1, Math.ceil((answer.until_us - answer.from_us) / (answer.part_s * 1e6)));
}

/**
 * Returns min, mean and max of one series by part. A value holds until the next one, unless that is a gap, so that a series that is sampled
 * more rarely than there are parts has no gaps between its samples.
 */
export function columnsOf(series, answer) {
    const count = countOf(answer);
    const positions = series.time_us.map((time_us) => Math.round((time_us - answer.from_us) / (answer.part_s * 1e6)));
    const distances = distancesOf(positions);
    const columns = ["min", "mean", "max"].map(() => new Array(count).fill(null));
    positions.forEach((position, number) => {
        const distance = distances[number] ?? 1;
        const isShort = distance <= GAP || distance <= GAP * medianOf(distances.slice(Math.max(number - AROUND, 0), number + AROUND + 1));
        const end = isShort ? position + distance : position + 1;
        ["min", "mean", "max"].forEach((name, line) => columns[line].fill(series[name][number], Math.max(position, 0), Math.min(end, count)));
    });
    // Parts without a sample have the value that holds.
    const distance = medianOf(distancesOf(positions.filter((_, number) => series.count?.[number] !== 0)));
    return { columns, distance };
}

/** Adds columns, multiplied by a factor, to a sum: a part has a value if one of both has one. */
export function addColumns(sum, columns, factor) {
    // The largest value of a difference needs the smallest of what is subtracted.
    const from = factor < 0 ? [columns[2], columns[1], columns[0]] : columns;
    sum.forEach((line, number) => {
        for (let part = 0; part < line.length; part += 1) {
            const value = from[number][part];
            if (value !== null) line[part] = (line[part] ?? 0) + value * factor;
        }
    });
}

/** Replaces the values of a sum by those of columns where these are higher. */
export function keepHighest(sum, columns) {
    sum.forEach((line, number) => {
        columns[number].forEach((value, part) => {
            if (value !== null && (line[part] === null || value > line[part])) line[part] = value;
        });
    });
}

/** Lets each value hold until the next one, however long that is. */
export function holdOn(columns) {
    return columns.map((line) => {
        let last = null;
        return line.map((value) => { last = value ?? last; return last; });
    });
}

/** Removes the parts of a difference in which nothing is there to subtract from. */
export function keepWhere(sum, isThere) {
    for (const line of sum) isThere.forEach((there, part) => { if (!there) line[part] = null; });
}

const known = (values) => values.filter((value) => value !== null);

function median(sorted) {
    const middle = sorted.length >> 1;
    return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Returns the lines of a chart: those of the only node, or the least, the median and the largest mean over nodes. */
export function linesOf(nodes) {
    if (nodes.length <= 1) return nodes[0] ?? [[], [], []];
    const lines = [[], [], []];
    for (let part = 0; part < nodes[0][1].length; part += 1) {
        const values = known(nodes.map((node) => node[1][part])).sort((one, other) => one - other);
        const isEmpty = values.length === 0;
        lines[0].push(isEmpty ? null : values[0]);
        lines[1].push(isEmpty ? null : median(values));
        lines[2].push(isEmpty ? null : values[values.length - 1]);
    }
    return lines;
}

/** Returns the extent of the values of all nodes. */
export function extentOf(nodes) {
    let [min, max, sum, count] = [null, null, 0, 0];
    for (const [lows, means, highs] of nodes) {
        for (const value of known(lows)) min = min === null ? value : Math.min(min, value);
        for (const value of known(highs)) max = max === null ? value : Math.max(max, value);
        for (const value of known(means)) { sum += value; count += 1; }
    }
    return { min, mean: count > 0 ? sum / count : null, max };
}
