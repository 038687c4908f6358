//! The request that a job script makes. Pure.

use std::fmt::Display;

use polymeter_analysis::model::{Resource, Scheduler};
use polymeter_analysis::proposals::{Proposal, Request};

use super::oar::Oar;
use super::slurm::Slurm;

/// Values that could not be read, each with its option and the reason.
#[derive(Debug, Default)]
pub(super) struct Unread(pub(super) Vec<String>);

impl Unread {
    /// Reads a value; none if it cannot be read.
    pub(super) fn read<T, E: Display>(
        &mut self,
        name: &str,
        text: &str,
        parse: impl FnOnce() -> Result<T, E>,
    ) -> Option<T> {
        parse().map_err(|error| self.0.push(format!("cannot read `{text}` of {name}: {error}"))).ok()
    }

    /// Reads a number above 0.
    pub(super) fn number(&mut self, name: &str, text: &str) -> Option<f64> {
        self.read(name, text, || match text.parse::<u32>() {
            Ok(number) if number > 0 => Ok(f64::from(number)),
            Ok(_) | Err(_) => Err("expected a number above 0"),
        })
    }
}

/// A request, in the form of its scheduler.
#[derive(Debug)]
pub(super) enum Script {
    Slurm(Slurm),
    Oar(Oar),
}

impl Script {
    /// Reads a script; none if it has no line of a scheduler.
    pub(super) fn read(text: &str, file_name: Option<&str>, unread: &mut Unread) -> Option<Self> {
        Slurm::of_script(text, file_name, unread)
            .map(Self::Slurm)
            .or_else(|| Oar::of_script(text, unread).map(Self::Oar))
    }

    /// Returns the request of an earlier job, whose final state tells its scheduler.
    pub(super) fn of_job(request: &Request, state: Option<&str>) -> Self {
        if state.is_some_and(|state| ["Terminated", "Error"].contains(&state)) {
            Self::Oar(Oar::of_job(request))
        } else {
            Self::Slurm(Slurm::of_job(request))
        }
    }

    pub(super) const fn request(&self) -> &Request {
        match self {
            Self::Slurm(slurm) => &slurm.request,
            Self::Oar(oar) => &oar.request,
        }
    }

    pub(super) const fn scheduler(&self) -> Scheduler {
        match self {
            Self::Slurm(_) => Scheduler::Slurm,
            Self::Oar(_) => Scheduler::Oar,
        }
    }

    /// Returns the lines that request what is proposed, where that differs from the request.
    pub(super) fn lines(&self, proposals: &[Proposal]) -> Vec<String> {
        let changes = proposals.iter().filter(|of| of.requested != Some(of.proposed));
        let changes: Vec<(Resource, f64)> = changes.map(|of| (of.resource, of.proposed)).collect();
        match self {
            Self::Slurm(slurm) => {
                changes.iter().filter_map(|(resource, proposed)| slurm.line(*resource, *proposed)).collect()
            }
            Self::Oar(oar) => oar.line(&changes).into_iter().collect(),
        }
    }
}

/// Writes seconds as schedulers read them.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
pub(super) fn time_text(seconds: f64) -> String {
    let minutes = (seconds / 60.0).ceil() as u64;
    format!("{:02}:{:02}:00", minutes / 60, minutes % 60)
}

/// Writes bytes as Slurm reads them, rounded up.
pub(super) fn memory_text(bytes: f64) -> String {
    const MIB: f64 = 1_048_576.0;
    let mib = (bytes / MIB).ceil();
    if mib % 1024.0 == 0.0 { format!("{:.0}G", mib / 1024.0) } else { format!("{mib:.0}M") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_read_or_is_no_script() {
        let mut unread = Unread::default();
        for text in ["", "#!/bin/sh\n", "#PBS -l nodes=1\n", "\u{0}#SBATCH -n 4", "#SBATCH", "#OAR"] {
            assert!(Script::read(text, None, &mut unread).is_none(), "{text:?}");
        }
        for text in [
            "#SBATCH --gres=gpu:::\n#SBATCH --mem=999999999999999999999999E\n#SBATCH -n 99999999999 -t -1",
            "#SBATCH -N 0 --mem-per-cpu=1G -n 3 -t \u{1F4A9} -c\n#SBATCH --gpus=,,(",
            "#OAR -l }{/nodes=0/core=9999999999,walltime=::::,walltime=",
            "#OAR -l",
        ] {
            let script = Script::read(text, None, &mut unread).unwrap();
            for resource in Resource::ALL {
                let of = Proposal {
                    resource,
                    requested: None,
                    jobs: 5,
                    median: 1.0,
                    median_interval: None,
                    most: 1.0,
                    proposed: 2.0,
                    fits_at_least: 0.5,
                };
                script.lines(&[of]);
            }
        }
    }
}
