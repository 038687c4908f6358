//! Request that a job script makes. Pure.

use polymeter_analysis::model::{Resource, Scheduler};
use polymeter_analysis::proposals::{Proposal, Request};

use super::oar::Oar;
use super::slurm::Slurm;
use super::values::Unread;

#[derive(Debug)]
pub(super) enum Script {
    Slurm(Slurm),
    Oar(Oar),
}

impl Script {
    /// None without a line of a scheduler.
    pub(super) fn read(text: &str, file_name: Option<&str>, unread: &mut Unread) -> Option<Self> {
        Slurm::of_script(text, file_name, unread)
            .map(Self::Slurm)
            .or_else(|| Oar::of_script(text, unread).map(Self::Oar))
    }

    /// Takes the scheduler from the final state of the job.
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

    /// Only where a proposal differs from the request.
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
