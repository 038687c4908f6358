//! Derived metrics.
//!
//! Sources: floating-point operations of Intel, `FP_ARITH_INST_RETIRED` (event 0xC7, Intel's perfmon files),
//! which counts a fused multiply-add twice; of AMD, `fp_ret_sse_avx_ops.all` (PPR, PMCx003), which counts
//! operations; of Neoverse V2, `FP_FIXED_OPS_SPEC` and `FP_SCALE_OPS_SPEC` (Arm Architecture Reference
//! Manual, D13), where the latter counts per 128 bits, which is the length of its vectors. Memory: CAS
//! commands, each of which moves 64 bytes.

use crate::catalogue::formula::{Derived, Formula, Input, Machine, Quantity};
use crate::catalogue::metric::Scope;

const fn of(name: &'static str, metric: &'static str) -> Input {
    Input { name, quantity: Quantity::Metric(metric) }
}

const fn lines_of(name: &'static str, metric: &'static str) -> Input {
    Input { name, quantity: Quantity::Lines(metric) }
}

const INTEL_FLOPS: Formula = Formula {
    machine: Machine::Intel,
    inputs: &[
        of("d1", "perf.event.fp_arith_inst_retired.scalar_double"),
        of("d2", "perf.event.fp_arith_inst_retired.128b_packed_double"),
        of("d4", "perf.event.fp_arith_inst_retired.256b_packed_double"),
        of("d8", "perf.event.fp_arith_inst_retired.512b_packed_double"),
        of("s1", "perf.event.fp_arith_inst_retired.scalar_single"),
        of("s4", "perf.event.fp_arith_inst_retired.128b_packed_single"),
        of("s8", "perf.event.fp_arith_inst_retired.256b_packed_single"),
        of("s16", "perf.event.fp_arith_inst_retired.512b_packed_single"),
    ],
    expression: "(d1 + 2 * d2 + 4 * d4 + 8 * d8 + s1 + 4 * s4 + 8 * s8 + 16 * s16) / seconds",
};

const AMD_FLOPS: Formula = Formula {
    machine: Machine::Amd,
    inputs: &[of("all", "perf.event.fp_ret_sse_avx_ops.all")],
    expression: "all / seconds",
};

const NEOVERSE_V2_FLOPS: Formula = Formula {
    machine: Machine::NeoverseV2,
    inputs: &[of("fixed", "perf.event.fp_fixed_ops_spec"), of("scaled", "perf.event.fp_scale_ops_spec")],
    expression: "(fixed + scaled) / seconds",
};

pub(crate) static DERIVED: &[Derived] = &[
    Derived {
        name: "perf.ipc",
        unit: "instructions/cycle",
        scope: Scope::Job,
        help: "Instructions per cycle.",
        formulas: &[Formula {
            machine: Machine::Any,
            inputs: &[of("instructions", "perf.instructions"), of("cycles", "perf.cpu_cycles")],
            expression: "instructions / cycles",
        }],
    },
    Derived {
        name: "perf.cache_miss_ratio",
        unit: "percent",
        scope: Scope::Job,
        help: "Share of the accesses to the last-level cache that missed.",
        formulas: &[Formula {
            machine: Machine::Any,
            inputs: &[of("misses", "perf.cache_misses"), of("accesses", "perf.cache_references")],
            expression: "100 * misses / accesses",
        }],
    },
    Derived {
        name: "perf.branch_miss_ratio",
        unit: "percent",
        scope: Scope::Job,
        help: "Share of the branches that were mispredicted.",
        formulas: &[Formula {
            machine: Machine::Any,
            inputs: &[of("misses", "perf.branch_misses"), of("branches", "perf.branch_instructions")],
            expression: "100 * misses / branches",
        }],
    },
    Derived {
        name: "perf.flops",
        unit: "flop/s",
        scope: Scope::Job,
        help: "Floating-point operations per second, of double and single precision.",
        formulas: &[INTEL_FLOPS, AMD_FLOPS, NEOVERSE_V2_FLOPS],
    },
    Derived {
        name: "node.dram.bandwidth",
        unit: "bytes/s",
        scope: Scope::Node,
        help: "Bytes per second between the node's processors and its memory.",
        formulas: &[
            Formula {
                machine: Machine::Intel,
                inputs: &[
                    lines_of("reads", "node.pmu.uncore_imc.cas_count_read"),
                    lines_of("writes", "node.pmu.uncore_imc.cas_count_write"),
                ],
                expression: "(reads + writes) / seconds",
            },
            Formula {
                machine: Machine::Amd,
                inputs: &[
                    lines_of("reads", "node.pmu.amd_umc.umc_cas_cmd.rd"),
                    lines_of("writes", "node.pmu.amd_umc.umc_cas_cmd.wr"),
                ],
                expression: "(reads + writes) / seconds",
            },
        ],
    },
    Derived {
        name: "energy_per.*",
        unit: "joules",
        scope: Scope::Job,
        help: "Energy of the job per unit of work: of the growth of the user's own metric of this name.",
        formulas: &[Formula {
            machine: Machine::Any,
            inputs: &[
                Input { name: "energy", quantity: Quantity::Energy },
                Input { name: "work", quantity: Quantity::Pushed },
            ],
            expression: "energy / work",
        }],
    },
];
