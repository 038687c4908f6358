//! The reasons why a program cannot be used, with the remedies.

use std::io;

use rustix::io::Errno;

/// The step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The counters were created, or the program was loaded.
    Load,
    /// The program was attached to the cgroup.
    Attach,
    /// The memory of a tracing program was taken, or the program was loaded and attached.
    Trace,
}

/// Returns the meaning of an error of bpf(2), with the remedy.
pub(super) fn meaning(step: Step, error: &io::Error) -> String {
    let meaning = match (error.raw_os_error().map(Errno::from_raw_os_error), step) {
        (Some(Errno::PERM | Errno::ACCESS), Step::Load) => {
            "permission denied; run the agent as root or with CAP_BPF and CAP_NET_ADMIN (CAP_SYS_ADMIN before Linux 5.8), allow \
             the system call bpf, and raise LimitMEMLOCK before Linux 5.11"
        }
        (Some(Errno::PERM), Step::Trace) => {
            "permission denied; run the agent as root or with CAP_BPF and CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8), allow the \
             system call bpf, and raise LimitMEMLOCK before Linux 5.11; a kernel that is locked down for confidentiality allows \
             no tracing"
        }
        (Some(Errno::NOSYS | Errno::INVAL | Errno::NOTSUP), Step::Trace) => {
            "the kernel does not support it; it needs Linux 5.10 or later with CONFIG_BPF_EVENTS and CONFIG_DEBUG_INFO_BTF"
        }
        (Some(Errno::PERM | Errno::ACCESS), Step::Attach) => {
            "permission denied; the agent needs CAP_NET_ADMIN, and no cgroup above may have a program that excludes others"
        }
        (Some(Errno::TOOBIG), Step::Attach) => {
            "the cgroup has as many programs as the kernel allows; detach others"
        }
        (Some(Errno::BADF), Step::Attach) => "the job's directory is no cgroup of version 2",
        (Some(Errno::NOENT), Step::Attach) => "the job's cgroup has been removed",
        (Some(Errno::NOSYS | Errno::INVAL | Errno::NOTSUP), _) => {
            "the kernel does not support it; it needs Linux 5.7 or later with CONFIG_CGROUP_BPF"
        }
        (Some(Errno::MFILE | Errno::NFILE), _) => "no file descriptors left; raise LimitNOFILE",
        (Some(Errno::NOMEM | Errno::AGAIN), _) => "the kernel has no memory for it; sample it for fewer jobs",
        _ => "the kernel refused it",
    };
    let object = match step {
        Step::Load => "cannot load the eBPF program",
        Step::Attach => "cannot attach the eBPF program to the job's cgroup",
        Step::Trace => "cannot trace the kernel with the eBPF program",
    };
    format!("{object}: {meaning} ({error})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_remedies() {
        let of = |step, errno: Errno| meaning(step, &io::Error::from(errno));
        assert!(of(Step::Load, Errno::PERM).contains("CAP_BPF and CAP_NET_ADMIN"));
        assert!(of(Step::Attach, Errno::PERM).contains("CAP_NET_ADMIN"));
        assert!(of(Step::Trace, Errno::PERM).contains("CAP_BPF and CAP_PERFMON"));
        assert!(of(Step::Trace, Errno::INVAL).contains("CONFIG_DEBUG_INFO_BTF"));
        assert!(of(Step::Load, Errno::NOSYS).contains("Linux 5.7"));
        assert!(of(Step::Attach, Errno::TOOBIG).contains("detach"));
        assert!(of(Step::Load, Errno::MFILE).contains("LimitNOFILE"));
        assert!(of(Step::Load, Errno::IO).ends_with("(Input/output error (os error 5))"));
    }
}
