// The series that sums take. Devices contain each other, and the kernel counts the same bytes for each of them.

const nameOf = ({ labels }) => labels.device ?? labels.interface;

/** Returns what series have in common whose devices may contain each other. */
function groupOf({ node, metric, labels }) {
    const others = Object.entries(labels).filter(([key]) => key !== "device" && key !== "interface");
    return JSON.stringify([node, metric, others.sort()]);
}

/** Returns the series without those whose bytes are those of others. The lowest devices that have series count. */
export function summed(all) {
    const groups = new Map();
    for (const series of all.filter(nameOf)) {
        const key = groupOf(series);
        if (!groups.has(key)) groups.set(key, { names: new Set(), hasPhysical: false });
        const group = groups.get(key);
        group.names.add(nameOf(series));
        group.hasPhysical ||= series.role === "physical";
    }
    const counts = (series) => {
        // The processes of a job provide its I/O until the file of the cgroup appears, which contains theirs.
        if (!nameOf(series)) return !(series.metric.startsWith("io.") && groups.has(groupOf(series)));
        if (!series.role || series.role === "physical") return true;
        if (series.role === "local") return false;
        const { names, hasPhysical } = groups.get(groupOf(series));
        return series.below.length > 0 ? !series.below.some((name) => names.has(name)) : !hasPhysical;
    };
    return all.filter(counts);
}
