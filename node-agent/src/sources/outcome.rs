//! How a read ended: an expected end, a temporary failure and a fault are told apart.

use rustix::io::Errno;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All values of the last read were read again.
    Read,
    /// All remaining values were read; some came or went, and the source should be opened anew.
    Changed,
    /// Expected end: the job has ended, or the device was removed.
    Gone,
    /// Perhaps temporary failure: the values are absent, and the next deadline tries again.
    Retry(Errno),
    /// Lasting failure: the source should be opened anew.
    Fault(Errno),
}

impl Outcome {
    pub fn of_error(errno: Errno) -> Self {
        match errno {
            // ENODEV: the cgroup or device was removed (kernfs_get_active fails); ESRCH: the process has
            // ended; ENXIO: the device was unplugged.
            Errno::NODEV | Errno::NOENT | Errno::SRCH | Errno::NXIO => Self::Gone,
            // The kernel was interrupted or short of memory; a device was busy, asleep, or slow to answer.
            Errno::INTR | Errno::AGAIN | Errno::NOMEM | Errno::BUSY | Errno::NODATA | Errno::TIMEDOUT => {
                Self::Retry(errno)
            }
            _ => Self::Fault(errno),
        }
    }

    pub const fn has_values(self) -> bool {
        matches!(self, Self::Read | Self::Changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_errors() {
        assert_eq!(Outcome::of_error(Errno::NODEV), Outcome::Gone);
        assert_eq!(Outcome::of_error(Errno::AGAIN), Outcome::Retry(Errno::AGAIN));
        assert_eq!(Outcome::of_error(Errno::IO), Outcome::Fault(Errno::IO));
        assert!(Outcome::Changed.has_values() && !Outcome::Gone.has_values());
    }
}
