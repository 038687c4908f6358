// The rows of the heat map of a job: one for each node, or for several where there are many.

/** The rows that the server returns at most. */
export const ROWS_MAX = 200;

/** Groups nodes, which are sorted, into rows, as the server does. */
export function rowsOf(nodes) {
    const size = Math.ceil(nodes.length / ROWS_MAX);
    return Array.from({ length: Math.ceil(nodes.length / size) }, (_, row) => {
        const group = nodes.slice(row * size, (row + 1) * size);
        return { first: group[0], last: group[group.length - 1], nodes: group.length };
    });
}
