// The important quantities of a node itself, in the form of those of a job: the first choice of which a metric was sampled counts.

/** The kernel counts sectors of 512 bytes, whatever those of the disk are. */
const SECTORS = { factor: 512, unit: "bytes/s" };

const just = (title, metric, more = {}) => ({ title, metric, plus: [], minus: [], ...more });

export const OWN_QUANTITIES = [
    {
        id: "node-cores",
        choices: [just("Busy cores", "node.cpu.user", { plus: ["node.cpu.nice", "node.cpu.system", "node.cpu.irq", "node.cpu.softirq"] })],
    },
    {
        id: "node-memory",
        choices: [
            just("Memory in use", "node.memory.total", { minus: ["node.memory.available"], needs: ["node.memory.available"] }),
            just("Memory in use: anonymous and shared", "node.memory.anon", { plus: ["node.memory.shmem"] }),
            just("Memory available", "node.memory.available"),
        ],
    },
    {
        id: "node-power",
        choices: [
            just("Power", "node.ipmi.power"), just("Power", "node.cray.power"), just("Power", "node.cray.energy"),
            just("Power of the processors and the memory", "node.energy.package", { plus: ["node.energy.memory"] }),
            just("Power at the sensors", "node.hwmon.power.average"), just("Power at the sensors", "node.hwmon.power"),
        ],
    },
    {
        id: "node-temperature",
        choices: [
            just("Temperature of the hottest sensor", "node.hwmon.temperature", { isHighest: true }),
            just("Temperature of the hottest zone", "node.thermal.temperature", { isHighest: true }),
            just("Temperature of the hottest processor", "node.cray.cpu.temperature", { isHighest: true }),
        ],
    },
    { id: "node-gpu", choices: [just("GPU utilization", "node.gpu.utilization"), just("GPU utilization", "node.gpu.drm.utilization")] },
    { id: "node-gpu-power", choices: [just("GPU power", "node.gpu.power"), just("GPU power", "node.gpu.energy"), just("GPU power", "node.gpu.drm.power")] },
    { id: "node-receive", choices: [just("Received over the network", "node.network.receive.bytes")] },
    { id: "node-transmit", choices: [just("Transmitted over the network", "node.network.transmit.bytes")] },
    { id: "node-fabric-receive", choices: [just("Received over InfiniBand", "node.infiniband.receive.bytes")] },
    { id: "node-fabric-transmit", choices: [just("Transmitted over InfiniBand", "node.infiniband.transmit.bytes")] },
    { id: "node-read", choices: [just("Read from disks", "node.disk.read.sectors", SECTORS)] },
    { id: "node-write", choices: [just("Written to disks", "node.disk.write.sectors", SECTORS)] },
    { id: "node-load", choices: [just("Load average over a minute", "node.load1")] },
    { id: "node-pressure", choices: [just("CPU pressure: time with waiting tasks", "node.pressure.cpu.some.total")] },
];
