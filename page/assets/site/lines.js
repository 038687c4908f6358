// The lines of a chart over nodes.

const known = (values) => values.filter((value) => value !== null);

function median(sorted) {
    const middle = sorted.length >> 1;
    return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Returns the values of a chart at one instant from the min, mean and max of each node: those of the only node, or the least, the median and the largest mean. */
export function lineValues(nodes) {
    if (nodes.length <= 1) return nodes[0] ?? [null, null, null];
    const values = known(nodes.map(([, mean]) => mean)).sort((one, other) => one - other);
    return values.length === 0 ? [null, null, null] : [values[0], median(values), values[values.length - 1]];
}
