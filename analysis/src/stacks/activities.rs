//! Activities: what a program does in functions with known names, such as waiting for locks. Pure.

use std::collections::{BTreeMap, HashMap};

use polymeter_proto::name::matches_glob;

use super::stack_names::Function;
use super::tree::{Node, Tree, Weight};
use crate::model::{ActivityReport, FunctionShare};

const KERNEL: &str = "[kernel]";

const FUNCTIONS: usize = 3;

/// Activity of functions without a symbol, of which no other is known.
pub const NO_SYMBOL: &str = "no-symbol";

/// Names of functions in modules, both as globs. A function without a symbol has its module in brackets as
/// its name.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    pub module: &'static str,
    pub functions: &'static [&'static str],
}

#[derive(Debug, Clone, Copy)]
pub struct Activity {
    pub name: &'static str,
    pub text: &'static str,
    /// Their time belongs to the activity, with that of all they call.
    pub total: &'static [Pattern],
    /// Their own time belongs to the activity, with that of the kernel for them: they also call the program's
    /// functions.
    pub own: &'static [Pattern],
}

const fn pattern(module: &'static str, functions: &'static [&'static str]) -> Pattern {
    Pattern { module, functions }
}

/// The outermost function that is known decides, since callers say what a call is for.
pub static ACTIVITIES: [Activity; 8] = [
    Activity {
        name: "mpi",
        text: "MPI communication",
        total: &[pattern(
            "*",
            &[
                "MPI_Wait*",
                "PMPI_Wait*",
                "mpi_wait*_",
                "MPI_Test*",
                "PMPI_Test*",
                "mpi_test*_",
                "MPI_Probe",
                "PMPI_Probe",
                "mpi_probe_",
                "MPI_Barrier",
                "PMPI_Barrier",
                "mpi_barrier_",
                "MPI_*reduce*",
                "PMPI_*reduce*",
                "mpi_*reduce*_",
                "MPI_Reduce*",
                "PMPI_Reduce*",
                "MPI_Bcast",
                "PMPI_Bcast",
                "mpi_bcast_",
                "MPI_*gather*",
                "PMPI_*gather*",
                "mpi_*gather*_",
                "MPI_Alltoall*",
                "PMPI_Alltoall*",
                "mpi_alltoall*_",
                "MPI_Recv",
                "PMPI_Recv",
                "mpi_recv_",
                "MPI_Send",
                "PMPI_Send",
                "mpi_send_",
                "MPI_Sendrecv*",
                "PMPI_Sendrecv*",
                "mpi_sendrecv*_",
                "MPIDI_*progress*",
                "MPIDI_*Progress*",
                "MPID_Progress*",
                "opal_progress",
                "ucp_worker_progress",
            ],
        )],
        own: &[
            pattern("libmpi.so*", &["*"]),
            pattern("libmpich.so*", &["*"]),
            pattern("libopen-pal.so*", &["*"]),
            pattern("mca_*", &["*"]),
            pattern("libuc?.so*", &["*"]),
            pattern("libfabric.so*", &["*"]),
            pattern("libpsm2.so*", &["*"]),
        ],
    },
    Activity {
        name: "openmp",
        text: "the OpenMP runtime, which waits at barriers",
        total: &[],
        // A thread that waits at a barrier executes tasks there.
        own: &[
            pattern("libgomp.so*", &["*"]),
            pattern("libomp.so*", &["*"]),
            pattern("libiomp5.so*", &["*"]),
            pattern(
                "*",
                &[
                    "gomp_*barrier_wait*",
                    "gomp_barrier_wait*",
                    "__kmp_*wait*",
                    "kmp_*wait*",
                    "__kmp_*barrier*",
                ],
            ),
        ],
    },
    Activity {
        name: "locks",
        text: "waiting for locks",
        total: &[pattern(
            "*",
            &[
                "pthread_spin_lock",
                "__pthread_spin_lock",
                "pthread_spin_trylock",
                "__lll_lock_wait*",
                "pthread_mutex_lock*",
                "__pthread_mutex_lock*",
                "___pthread_mutex_lock",
                "pthread_rwlock_*lock*",
                "__pthread_rwlock_*lock*",
                "std::mutex::lock*",
            ],
        )],
        own: &[],
    },
    Activity {
        name: "threads",
        text: "waiting for other threads",
        total: &[pattern(
            "*",
            &[
                "pthread_cond_*wait*",
                "__pthread_cond_*wait*",
                "pthread_*join*",
                "__pthread_*join*",
                "pthread_barrier_wait*",
                "__pthread_barrier_wait*",
            ],
        )],
        own: &[],
    },
    Activity {
        name: "io",
        text: "calls that read and write",
        total: &[
            pattern(
                KERNEL,
                &[
                    "ksys_read",
                    "ksys_write",
                    "ksys_p*64",
                    "vfs_read*",
                    "vfs_write*",
                    "vfs_fsync*",
                    "do_fsync",
                    "do_readv",
                    "do_writev",
                    "do_sys_open*",
                    "__?64_sys_*read*",
                    "__?64_sys_*write*",
                    "__x64_sys_p*64",
                    "__x64_sys_f*sync",
                ],
            ),
            pattern(
                "lib*",
                &[
                    "read",
                    "__read",
                    "__libc_read",
                    "write",
                    "__write",
                    "__libc_write",
                    "pread*",
                    "__*pread64*",
                    "pwrite*",
                    "__*pwrite64*",
                    "readv",
                    "writev",
                    "fread*",
                    "fwrite*",
                    "fsync",
                    "fdatasync",
                    "__libc_open*",
                    "MPI_File_*",
                    "PMPI_File_*",
                ],
            ),
        ],
        own: &[],
    },
    Activity {
        name: "page-faults",
        text: "page faults",
        total: &[pattern(
            KERNEL,
            &[
                "asm_exc_page_fault",
                "exc_page_fault",
                "page_fault",
                "do_page_fault",
                "__do_page_fault",
                "do_user_addr_fault",
                "handle_mm_fault",
                "do_mem_abort",
                "clear_page*",
                "clear_huge_page",
            ],
        )],
        own: &[],
    },
    Activity {
        name: "interpreter",
        text: "the Python interpreter",
        total: &[],
        own: &[
            pattern("python*", &["*"]),
            pattern("libpython*", &["*"]),
            pattern("*", &["_PyEval_EvalFrame*", "PyEval_EvalFrame*"]),
        ],
    },
    Activity {
        name: "numerical-libraries",
        text: "numerical libraries",
        total: &[],
        own: &[
            pattern("*openblas*", &["*"]),
            pattern("libmkl*", &["*"]),
            pattern("libblas*", &["*"]),
            pattern("libblis*", &["*"]),
            pattern("liblapack*", &["*"]),
            pattern("_multiarray_umath*", &["*"]),
            pattern("libtorch*", &["*"]),
            pattern("libfftw3*", &["*"]),
        ],
    },
];

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    total: Option<&'static Activity>,
    own: Option<&'static Activity>,
}

impl Known {
    fn of(function: &Function) -> Self {
        let label = function.label();
        let is_named = |patterns: &[Pattern]| {
            patterns.iter().any(|pattern| {
                matches_glob(pattern.module, &function.module)
                    && pattern.functions.iter().any(|glob| matches_glob(glob, &label))
            })
        };
        Self {
            total: ACTIVITIES.iter().find(|activity| is_named(activity.total)),
            own: ACTIVITIES.iter().find(|activity| is_named(activity.own)),
        }
    }
}

/// Activity of a function, as far as its own name tells it.
pub(super) fn activity_of(function: &Function) -> Option<&'static Activity> {
    let known = Known::of(function);
    known.total.or(known.own)
}

/// The one with the most time comes first.
pub(super) fn activities(tree: &Tree) -> Vec<ActivityReport> {
    let mut times: BTreeMap<&str, HashMap<usize, Weight>> = BTreeMap::new();
    let known: Vec<Known> = tree.functions().iter().map(Known::of).collect();
    let mut outer: Vec<Option<(&str, usize)>> = Vec::with_capacity(tree.nodes().len());
    for node in tree.nodes() {
        let of_function = known.get(node.function).copied().unwrap_or_default();
        let of_callers = node.parent.and_then(|parent| outer.get(parent).copied().flatten());
        let total = of_callers.or(of_function.total.map(|activity| (activity.name, node.function)));
        outer.push(total);
        let chosen = total
            .or_else(|| of_program(tree, &known, *node))
            .or_else(|| (!tree.function(node).has_symbol()).then_some((NO_SYMBOL, node.function)));
        if let Some((name, function)) = chosen.filter(|_| node.own.samples > 0) {
            *times.entry(name).or_default().entry(function).or_default() += node.own;
        }
    }
    let all = tree.total();
    let mut reports: Vec<ActivityReport> =
        times.into_iter().map(|(name, of_functions)| report(name, tree, &of_functions, all)).collect();
    reports.sort_by(|one, other| other.percent.total_cmp(&one.percent));
    reports
}

/// Activity of the innermost function of the program itself, below those of the kernel.
fn of_program(tree: &Tree, known: &[Known], mut node: Node) -> Option<(&'static str, usize)> {
    while tree.function(&node).module == KERNEL {
        node = *tree.nodes().get(node.parent?)?;
    }
    Some((known.get(node.function)?.own?.name, node.function))
}

fn report(name: &str, tree: &Tree, of_functions: &HashMap<usize, Weight>, all: Weight) -> ActivityReport {
    let mut sum = Weight::default();
    of_functions.values().for_each(|weight| sum += *weight);
    let mut functions: Vec<FunctionShare> = of_functions
        .iter()
        .filter_map(|(number, weight): (&usize, &Weight)| {
            let function = tree.functions().get(*number)?;
            let (module, self_percent) = (function.module.clone(), 100.0 * weight.share_of(all));
            Some(FunctionShare { function: function.label(), module, self_percent })
        })
        .collect();
    functions.sort_by(|one, other| {
        other
            .self_percent
            .total_cmp(&one.self_percent)
            .then_with(|| (&one.function, &one.module).cmp(&(&other.function, &other.module)))
    });
    functions.truncate(FUNCTIONS);
    ActivityReport { activity: name.to_owned(), percent: 100.0 * sum.share_of(all), functions }
}

pub fn activity_text(name: &str) -> &str {
    let known = ACTIVITIES.iter().find(|activity| activity.name == name);
    known.map_or("functions without a symbol", |activity| activity.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::tree::tests::tree;

    /// Path of functions, each with its module behind an `@`.
    fn path(text: &str) -> Vec<Function> {
        text.split(' ')
            .map(|word| {
                let (name, module) = word.split_once('@').unwrap_or((word, "a.out"));
                Function { name: name.to_owned(), module: module.to_owned() }
            })
            .collect()
    }

    /// Percentage of each activity in stacks with their times.
    fn shares(stacks: &[(&str, u64)]) -> BTreeMap<String, f64> {
        let paths: Vec<_> = stacks
            .iter()
            .map(|&(text, time_us)| (path(text), Weight { samples: time_us, time_us }))
            .collect();
        let found = activities(&tree(&paths)).into_iter();
        found.map(|activity| (activity.activity, activity.percent.round())).collect()
    }

    fn only(stack: &str) -> Option<String> {
        shares(&[(stack, 100)]).into_keys().next()
    }

    #[test]
    fn a_stack_belongs_to_the_activity_of_its_outermost_known_function() {
        for (stack, expected) in [
            ("main pthread_spin_lock@libc.so.6", Some("locks")),
            ("main pthread_mutex_lock@libc.so.6 __lll_lock_wait@libc.so.6 do_futex@[kernel]", Some("locks")),
            ("main pool pthread_cond_timedwait@libc.so.6", Some("threads")),
            ("main MPI_Allreduce@libmpi.so.40 pthread_mutex_lock@libc.so.6", Some("mpi")),
            ("main step MPIDI_CH3I_Progress@libmpi.so.12", Some("mpi")),
            ("main mpi_waitall_ x@libuct.so.0", Some("mpi")),
            ("main gomp_team_barrier_wait_end@libgomp.so.1", Some("openmp")),
            ("main @libgomp.so.1 do_futex@[kernel]", Some("openmp")),
            ("main __kmp_fork_barrier(int) kmp_flag_64<true>::wait(int)", Some("openmp")),
            ("main __kmp_hyper_barrier_release@libomp.so.5", Some("openmp")),
            ("main touch asm_exc_page_fault@[kernel] clear_page_erms@[kernel]", Some("page-faults")),
            ("main @a.out clear_page_rep@[kernel]", Some("page-faults")),
            ("main pwrite64@libc.so.6 ksys_pwrite64@[kernel] ext4_file_write_iter@[kernel]", Some("io")),
            ("main fsync@libc.so.6", Some("io")),
            ("main read@libc.so.6 asm_exc_page_fault@[kernel]", Some("io")),
            ("main _PyEval_EvalFrameDefault@python3.11", Some("interpreter")),
            (
                "main _PyEval_EvalFrameDefault@python3.11 dgemm_kernel@libopenblas.so.0",
                Some("numerical-libraries"),
            ),
            ("main @a.out", Some(NO_SYMBOL)),
            // Tasks are executed at a barrier, and the program has functions with common names.
            ("main gomp_team_barrier_wait_end@libgomp.so.1 task", None),
            ("main read", None),
            ("main solve", None),
            ("main solve apic_timer@[kernel]", None),
        ] {
            assert_eq!(only(stack).as_deref(), expected, "{stack}");
        }
    }

    #[test]
    fn shares_are_those_of_the_samples() {
        let found = shares(&[
            ("main solve", 60),
            ("main pthread_spin_lock@libc.so.6", 25),
            ("main work pthread_spin_lock@libc.so.6", 5),
            ("main solve asm_exc_page_fault@[kernel] clear_page_erms@[kernel]", 10),
        ]);
        let expected = [("locks".to_owned(), 30.0), ("page-faults".to_owned(), 10.0)];
        assert_eq!(found, BTreeMap::from(expected));
    }
}
