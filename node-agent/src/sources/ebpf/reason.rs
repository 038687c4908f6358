//! Why a program cannot be used, with the remedies.

use std::io;

use rustix::io::Errno;

use crate::sources::kernel_text::FileError;

#[derive(Debug, thiserror::Error)]
pub(super) enum EbpfError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0}; the kernel must be built with CONFIG_DEBUG_INFO_BTF, since Linux 5.4")]
    NoTypes(FileError),
    #[error(
        "the kernel has no `{0}`; it needs Linux 5.8 or later with CONFIG_SCHED_INFO and CONFIG_FAIR_GROUP_SCHED"
    )]
    Lacking(String),
    #[error("{}: {} ({error})", step.object(), step.meaning(error))]
    Refused { step: Step, error: io::Error },
    #[error("the system calls of this architecture are unknown; it needs x86-64 or Arm64")]
    UnknownSystemCalls,
    #[error("the program is too long")]
    TooLong,
    #[error(
        "eBPF finds the processes of a job by its cgroup, and the job has none; register the job with its cgroup"
    )]
    NoCgroup,
    #[error(
        "eBPF counts the network of cgroups of version 2, and the job has none; name one when the job is \
         registered, or boot the node with cgroups of version 2"
    )]
    NoCgroupOfVersion2,
    #[error("the root of the cgroups is no job")]
    RootCgroup,
    #[error("the network of {0} jobs and steps is counted already; sample it for fewer")]
    TooManyNetworks(usize),
    #[error("{0} jobs and steps are counted already; sample it for fewer")]
    TooManyJobs(u32),
    #[error("jobs and steps at {0} levels of cgroups are counted already")]
    TooManyLevels(usize),
    #[error("not registered")]
    NotRegistered,
    #[error("it is counted anew already")]
    CountedAnew,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Creating the counters, or loading the program.
    Load,
    /// Attaching the program to the cgroup.
    Attach,
    /// Taking memory for a tracing program, loading or attaching it.
    Trace,
}

impl Step {
    pub(super) const fn refused(self, error: io::Error) -> EbpfError {
        EbpfError::Refused { step: self, error }
    }

    const fn object(self) -> &'static str {
        match self {
            Self::Load => "cannot load the eBPF program",
            Self::Attach => "cannot attach the eBPF program to the job's cgroup",
            Self::Trace => "cannot trace the kernel with the eBPF program",
        }
    }

    /// Meaning of an error of bpf(2), with the remedy.
    fn meaning(self, error: &io::Error) -> &'static str {
        match (error.raw_os_error().map(Errno::from_raw_os_error), self) {
            (Some(Errno::PERM | Errno::ACCESS), Self::Load) => {
                "permission denied; run the agent as root or with CAP_BPF and CAP_NET_ADMIN (CAP_SYS_ADMIN before Linux 5.8), allow \
             the system call bpf, and raise LimitMEMLOCK before Linux 5.11"
            }
            (Some(Errno::PERM), Self::Trace) => {
                "permission denied; run the agent as root or with CAP_BPF and CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8), allow the \
             system call bpf, and raise LimitMEMLOCK before Linux 5.11; a kernel that is locked down for confidentiality allows \
             no tracing"
            }
            (Some(Errno::NOSYS | Errno::INVAL | Errno::NOTSUP), Self::Trace) => {
                "the kernel does not support it; it needs Linux 5.10 or later with CONFIG_BPF_EVENTS and CONFIG_DEBUG_INFO_BTF"
            }
            (Some(Errno::PERM | Errno::ACCESS), Self::Attach) => {
                "permission denied; the agent needs CAP_NET_ADMIN, and no cgroup above may have a program that excludes others"
            }
            (Some(Errno::TOOBIG), Self::Attach) => {
                "the cgroup has as many programs as the kernel allows; detach others"
            }
            (Some(Errno::BADF), Self::Attach) => "the job's directory is no cgroup of version 2",
            (Some(Errno::NOENT), Self::Attach) => "the job's cgroup has been removed",
            (Some(Errno::NOSYS | Errno::INVAL | Errno::NOTSUP), _) => {
                "the kernel does not support it; it needs Linux 5.7 or later with CONFIG_CGROUP_BPF"
            }
            (Some(Errno::MFILE | Errno::NFILE), _) => "no file descriptors left; raise LimitNOFILE",
            (Some(Errno::NOMEM | Errno::AGAIN), _) => {
                "the kernel has no memory for it; sample it for fewer jobs"
            }
            _ => "the kernel refused it",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_remedies() {
        let of = |step: Step, errno: Errno| step.refused(io::Error::from(errno)).to_string();
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
