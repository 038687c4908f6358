// The rows of the heat map of a job: one for each node, or for several where there are many.

/** The number of rows at most, as of those that the server returns. */
const ROWS_MAX = 200;

/** Groups nodes, which are sorted, into rows. */
export function rowsOf(nodes) {
    const size = Math.ceil(nodes.length / ROWS_MAX);
    return Array.from({ length: Math.ceil(nodes.length / size) }, (_, row) => {
        const group = nodes.slice(row * size, (row + 1) * size);
        return { first: group[0], last: group[group.length - 1], nodes: group.length, start: row * size };
    });
}

/** Returns the means over the nodes of each row, row by row. */
export function meansOfRows(rows, means, columns) {
    if (means.length === 0) return new Array(rows.length * columns).fill(null);
    return rows.flatMap(({ start, nodes }) => Array.from({ length: columns }, (_, part) => {
        const values = means.slice(start, start + nodes).map((node) => node[part]).filter((value) => value !== null);
        return values.length > 0 ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
    }));
}
