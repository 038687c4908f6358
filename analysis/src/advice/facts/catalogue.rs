//! Definitions of all facts. Pure.

use crate::expression::Type;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactUnit {
    Number,
    /// Number from 0 to 1 as a rule; `%` in a text.
    Share,
    Bytes,
    Seconds,
    Cores,
    PerSecond,
    Celsius,
    Text,
    Truth,
}

impl FactUnit {
    pub const fn value_type(self) -> Type {
        match self {
            Self::Text => Type::Text,
            Self::Truth => Type::Truth,
            Self::Number
            | Self::Share
            | Self::Bytes
            | Self::Seconds
            | Self::Cores
            | Self::PerSecond
            | Self::Celsius => Type::Number,
        }
    }

    /// Name for documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Share => "share",
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
            Self::Cores => "cores",
            Self::PerSecond => "1/s",
            Self::Celsius => "°C",
            Self::Text => "text",
            Self::Truth => "true or false",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct FactDefinition {
    pub name: &'static str,
    pub unit: FactUnit,
    /// One sentence.
    pub help: &'static str,
}

const fn fact(name: &'static str, unit: FactUnit, help: &'static str) -> FactDefinition {
    FactDefinition { name, unit, help }
}

pub static FACTS: &[FactDefinition] = &[
    fact(
        "elapsed",
        FactUnit::Seconds,
        "Time from the start to the end, or to the last sample of a running job.",
    ),
    fact("time_limit", FactUnit::Seconds, "Time limit of the job."),
    fact("time_limit_used", FactUnit::Share, "`elapsed` / `time_limit`."),
    fact("ended", FactUnit::Truth, "True if the job ended."),
    fact("state", FactUnit::Text, "Final state in the scheduler's terms, such as `COMPLETED`."),
    fact("exit_code", FactUnit::Number, "Exit status of the job's script."),
    fact("exit_signal", FactUnit::Number, "Signal that ended the job's script."),
    fact("nodes", FactUnit::Number, "Number of nodes."),
    fact(
        "cores",
        FactUnit::Cores,
        "Cores of the job on all nodes. Where the scheduler counts hardware threads, their cores.",
    ),
    fact("cpus", FactUnit::Cores, "CPUs of the job on all nodes, as the scheduler counts them."),
    fact(
        "cpus_per_core",
        FactUnit::Number,
        "`cpus` / `cores`: 1, or more where the scheduler counts hardware threads.",
    ),
    fact("cores_per_node", FactUnit::Cores, "`cores` / `nodes`."),
    fact("node_cpus", FactUnit::Number, "CPUs of the smallest node, where they are known for all nodes."),
    fact("node_cores", FactUnit::Number, "Cores of the smallest node; its CPUs where its cores are unknown."),
    fact(
        "gpus",
        FactUnit::Number,
        "GPUs of the job on all nodes: those that it requested, or more if more were sampled.",
    ),
    fact("memory_request", FactUnit::Bytes, "Memory that the job requested on each node."),
    fact("cpu_time", FactUnit::Seconds, "CPU time on all nodes."),
    fact("cpus_used", FactUnit::Cores, "Mean number of CPUs in use: `cpu_time` / `elapsed`."),
    fact(
        "cores_used",
        FactUnit::Cores,
        "Mean number of cores in use: `cpus_used`, but on each node at any time at most its cores of the job where the \
         scheduler counts hardware threads.",
    ),
    fact("cpu_efficiency", FactUnit::Share, "`cores_used` / `cores`."),
    fact(
        "standstill_share",
        FactUnit::Share,
        "Share of the time in which the job used no CPU time for 20 s or more: it was suspended, or it waited.",
    ),
    fact("cores_active", FactUnit::Cores, "Mean number of cores in use in the rest of the time."),
    fact("active_efficiency", FactUnit::Share, "`cores_active` / `cores`."),
    fact("cores_peak", FactUnit::Cores, "Largest number of cores in use at a time, summed over the nodes."),
    fact("cpus_peak", FactUnit::Cores, "Largest number of CPUs in use at a time, summed over the nodes."),
    fact("busiest_node", FactUnit::Text, "Node with the most CPU time."),
    fact("busiest_node_cores", FactUnit::Cores, "Mean number of cores in use on the busiest node."),
    fact("busiest_node_efficiency", FactUnit::Share, "`busiest_node_cores` / `cores_per_node`."),
    fact("idlest_node", FactUnit::Text, "Node with the least CPU time."),
    fact("idlest_node_cores", FactUnit::Cores, "Mean number of cores in use on the idlest node."),
    fact("idlest_node_efficiency", FactUnit::Share, "`idlest_node_cores` / `cores_per_node`."),
    fact("idlest_node_share", FactUnit::Share, "CPU time of the idlest node / CPU time of the busiest node."),
    fact("idle_nodes", FactUnit::Number, "Nodes with less than 5 % of the busiest node's CPU time."),
    fact("node_imbalance", FactUnit::Number, "Largest CPU time of a node / mean over the nodes."),
    fact("slowest_node_ratio", FactUnit::Number, "Largest CPU time of a node / median over the nodes."),
    fact("ranks", FactUnit::Number, "Tasks of the step with the most tasks."),
    fact(
        "rank_imbalance",
        FactUnit::Number,
        "Largest CPU time of a task of this step / mean over its tasks.",
    ),
    fact("busiest_rank", FactUnit::Text, "Task of this step with the most CPU time."),
    fact(
        "region_ranks",
        FactUnit::Number,
        "Ranks of instrumented programs; processes where they have no rank.",
    ),
    fact(
        "uneven_region",
        FactUnit::Text,
        "Region in which one rank spent most beyond the mean of the ranks, regions inside it left out.",
    ),
    fact("uneven_region_rank", FactUnit::Text, "Rank with the most time in this region: `rank 3`."),
    fact(
        "region_imbalance",
        FactUnit::Number,
        "Largest time of a rank in this region / mean over the ranks.",
    ),
    fact(
        "region_excess",
        FactUnit::Share,
        "Largest time of a rank in this region without the mean over the ranks / `elapsed`.",
    ),
    fact(
        "threads_peak",
        FactUnit::Number,
        "Largest number of threads or processes at a time, summed over the nodes.",
    ),
    fact("cpus_allowed", FactUnit::Number, "CPUs that the job may use, summed over the nodes."),
    fact(
        "cpus_bound",
        FactUnit::Number,
        "CPUs on which the job's busy threads may run, summed over the nodes; the largest number of each node.",
    ),
    fact("threads_busy", FactUnit::Number, "Mean number of busy threads, summed over the nodes."),
    fact(
        "throttled",
        FactUnit::Share,
        "Share of the enforcement periods in which the CPU limit stopped the job; the worst node.",
    ),
    fact(
        "cpu_waiting",
        FactUnit::Share,
        "Share of the time in which some thread waited for a CPU; the worst node.",
    ),
    fact(
        "cpu_pressure",
        FactUnit::Share,
        "Share of the time in which all threads waited for a CPU; the worst node.",
    ),
    fact(
        "memory_pressure",
        FactUnit::Share,
        "Share of the time in which all threads waited for memory; the worst node.",
    ),
    fact(
        "io_pressure",
        FactUnit::Share,
        "Share of the time in which all threads waited for I/O; the worst node.",
    ),
    fact(
        "memory_used",
        FactUnit::Bytes,
        "Peak of anonymous and shared memory and huge pages, without cache, on the node with the most; of a cgroup that ran out of memory its peak; without a cgroup the resident memory of the processes.",
    ),
    fact("memory_used_node", FactUnit::Text, "Node with the most used memory."),
    fact("memory_kind", FactUnit::Text, "Origin of `memory_used`."),
    fact("memory_used_total", FactUnit::Bytes, "`memory_used` summed over the nodes."),
    fact(
        "memory_cache",
        FactUnit::Bytes,
        "Peak of the page cache without shared memory, on the node with the most.",
    ),
    fact(
        "cgroup_memory_peak",
        FactUnit::Bytes,
        "Peak of the cgroup's memory, cache included, on the node with the most.",
    ),
    fact(
        "memory_limit",
        FactUnit::Bytes,
        "Hard memory limit of the cgroup on the node that came nearest to it, as it was when the most memory was used; without limits the request per node.",
    ),
    fact(
        "memory_counted",
        FactUnit::Bytes,
        "What `memory_limit` counts of the used memory on that node: huge pages only where the kernel counts them.",
    ),
    fact("memory_counted_node", FactUnit::Text, "Node that came nearest to its `memory_limit`."),
    fact(
        "oom_step",
        FactUnit::Text,
        "Step, with its node, that ran out of memory within a limit below that of the job.",
    ),
    fact("oom_step_limit", FactUnit::Bytes, "The limit of that step."),
    fact(
        "memory_bound",
        FactUnit::Bytes,
        "Upper bound of `memory_used`: the cgroup's peak without the peak of the cache if that is more, on the node with the most. It contains what was used between two samples, and memory of the kernel.",
    ),
    fact("memory_used_share", FactUnit::Share, "`memory_counted` / `memory_limit`."),
    fact("memory_request_used", FactUnit::Share, "`memory_used` / `memory_request`."),
    fact(
        "memory_growth",
        FactUnit::Number,
        "Peak of anonymous memory / that in the second tenth of the time, where it rises from each tenth to the next up to the ninth.",
    ),
    fact("oom_kills", FactUnit::Number, "Processes of the job that the OOM killer ended."),
    fact(
        "kept_growth",
        FactUnit::Bytes,
        "Growth of memory from the begin of the last kept interval to its highest value: of the node where it is greatest, or of \
         what grew most on it.",
    ),
    fact(
        "kept_growth_of",
        FactUnit::Text,
        "What grew so: `solver (4711) on n2`, `task 3 of step 0 on n2`, or a node.",
    ),
    fact("kept_growth_time", FactUnit::Seconds, "Time in which it grew."),
    fact("kept_growth_first", FactUnit::Bytes, "Its memory at the begin of the interval."),
    fact("kept_growth_highest", FactUnit::Bytes, "Its highest memory in the interval."),
    fact("kept_growth_others", FactUnit::Text, "The growth of the other nodes meanwhile, as a sentence."),
    fact("swap_peak", FactUnit::Bytes, "Peak of swap in use, on the node with the most."),
    fact(
        "major_faults_rate",
        FactUnit::PerSecond,
        "Page faults that needed I/O, per second of `elapsed`, on all nodes.",
    ),
    fact(
        "tail_ratio",
        FactUnit::Share,
        "Cores in use in the last tenth of the time / mean of the time before; the same of the utilization of GPUs if that is larger.",
    ),
    fact("tail_cores", FactUnit::Cores, "Cores in use in the last tenth of the time."),
    fact(
        "collapse_ratio",
        FactUnit::Share,
        "Cores in use after / before the time at which this ratio is smallest; of tenths from 2 to 8; the same of the utilization of GPUs if that is larger.",
    ),
    fact("collapse_time", FactUnit::Seconds, "Time of the smallest `collapse_ratio`, since the start."),
    fact("write_size_mean", FactUnit::Bytes, "Mean size of a write to a device."),
    fact("write_operations", FactUnit::Number, "Writes to devices."),
    fact("write_rate", FactUnit::PerSecond, "Writes to devices per second of `elapsed`."),
    fact(
        "metadata_rate",
        FactUnit::PerSecond,
        "Operations on metadata of file systems per second: metrics that end with `.metadata.operations`.",
    ),
    fact(
        "gpu_utilization",
        FactUnit::Share,
        "Mean utilization of the GPUs: metric `gpu.utilization`, in percent; of MIG devices `gpu.gpm.sm.active`.",
    ),
    fact("gpus_sampled", FactUnit::Number, "GPUs whose utilization was sampled."),
    fact("unused_gpus", FactUnit::Number, "GPUs whose utilization was never above 1 %."),
    fact(
        "gpu_idle_time",
        FactUnit::Seconds,
        "Time up to the last sample in which the utilization of a GPU was never above 1 %; of the GPU with the longest.",
    ),
    fact("gpu_memory_used", FactUnit::Bytes, "Peak of a GPU's memory: metric `gpu.memory.used`."),
    fact("gpu_memory_share", FactUnit::Share, "`gpu_memory_used` / the smallest `gpu.memory.total`."),
    fact("gpu_temperature", FactUnit::Celsius, "Highest `gpu.temperature`."),
    fact(
        "thermal_throttling",
        FactUnit::Share,
        "Share of the time in which a processor was slowed because of its temperature: counters that end with `.throttled.thermal.time`; the worst.",
    ),
    fact(
        "wasted_core_hours",
        FactUnit::Number,
        "Core-hours of a job without GPUs less those in use: (`cores` - `cores_used`) * `elapsed`, at least 0.",
    ),
    fact(
        "owner_wasted_core_hours",
        FactUnit::Number,
        "`wasted_core_hours` of the jobs of the owner that ended in the last seven days; known in rules of notices, about ended jobs. There is one notice of a rule that uses it a user and week.",
    ),
    fact("gap_share", FactUnit::Share, "Share of the time without contact to an agent, of all nodes."),
    fact(
        "lost_share",
        FactUnit::Share,
        "Samples that were due, available and are not stored / samples that were due and available.",
    ),
    fact("silent_nodes", FactUnit::Number, "Nodes without any sample."),
    fact("silent_node", FactUnit::Text, "First node without any sample."),
    fact(
        "measuring_cores",
        FactUnit::Cores,
        "Cores that the measurement used on a node, on average, where this is known.",
    ),
    fact("stack_samples", FactUnit::Number, "Samples of call stacks on CPUs: metric `stacks.cpu`."),
    fact(
        "stack_uncertainty",
        FactUnit::Share,
        "Half the width of the interval of 95 % confidence of a share of these samples, at most.",
    ),
    fact("mpi_share", FactUnit::Share, "Share of the samples in MPI communication."),
    fact("mpi_functions", FactUnit::Text, "Its functions with the most time."),
    fact(
        "openmp_share",
        FactUnit::Share,
        "Share of the samples in the OpenMP runtime, which waits at barriers.",
    ),
    fact("openmp_functions", FactUnit::Text, "Its functions with the most time."),
    fact("lock_share", FactUnit::Share, "Share of the samples in functions that wait for locks."),
    fact("lock_functions", FactUnit::Text, "Those with the most time."),
    fact(
        "io_share",
        FactUnit::Share,
        "Share of the samples in calls that read and write files, pipes or sockets.",
    ),
    fact("io_functions", FactUnit::Text, "Those with the most time."),
    fact("page_fault_share", FactUnit::Share, "Share of the samples in page faults."),
    fact("page_fault_functions", FactUnit::Text, "Functions of the kernel that serve them."),
    fact("interpreter_share", FactUnit::Share, "Share of the samples in the Python interpreter itself."),
    fact("interpreter_functions", FactUnit::Text, "Its functions with the most time."),
    fact(
        "numerical_share",
        FactUnit::Share,
        "Share of the samples in numerical libraries: BLAS, LAPACK, FFTW, NumPy, Torch.",
    ),
    fact("numerical_functions", FactUnit::Text, "Their functions with the most time."),
    fact(
        "no_symbol_share",
        FactUnit::Share,
        "Share of the samples in functions without a symbol, of which no activity is known.",
    ),
    fact("no_symbol_modules", FactUnit::Text, "Their programs and libraries with the most time."),
    fact(
        "wait_samples",
        FactUnit::Number,
        "Samples of the call stacks of threads that did not run: metric `stacks.wait`.",
    ),
    fact("wait_lock_share", FactUnit::Share, "Share of these samples in functions that wait for locks."),
    fact("wait_lock_functions", FactUnit::Text, "Those with the most time."),
    fact("wait_io_share", FactUnit::Share, "Share of these samples in calls that read and write."),
    fact("wait_io_functions", FactUnit::Text, "Those with the most time."),
    fact(
        "function_imbalance",
        FactUnit::Share,
        "(Most time of a process in a function - mean) / mean time of the processes in all functions; of the function with the \
         largest. Unknown where no process differs by more than chance.",
    ),
    fact("imbalanced_function", FactUnit::Text, "That function."),
    fact("imbalanced_process", FactUnit::Text, "Process with the most time in it."),
    fact("imbalanced_most", FactUnit::Seconds, "Time of this process in the function."),
    fact("imbalanced_mean", FactUnit::Seconds, "Mean time of the processes in the function."),
    fact("imbalanced_processes", FactUnit::Number, "Number of these processes, which execute the same file."),
];
