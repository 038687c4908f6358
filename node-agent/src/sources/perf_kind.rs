//! The kind of perf events.

use polymeter_proto::catalogue::PERF_KIND;

use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::perf::{PerfSource, PerfTarget, groups};
use super::source::Source;
use super::target::Target;

/// perf events of jobs.
pub(super) struct PerfKind;

impl SourceKind for PerfKind {
    fn name(&self) -> &'static str {
        PERF_KIND
    }

    fn lane(&self) -> Lane {
        Lane::Fast
    }

    fn fields(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let host = request.host;
        let target = match request.target {
            Target::Cgroups(cgroups) => {
                cgroups.perf_directory(host.mounts).map(|path| PerfTarget::Cgroup(path.to_owned()))
            }
            Target::Processes(root) => Some(PerfTarget::Process(*root)),
            Target::Node(_) => return,
        };
        let mut descriptors = 0;
        for (number, group) in groups(&request.wanted).into_iter().enumerate() {
            let Some(target) = &target else {
                let reason =
                    "the job has no cgroup of version 2 nor of the perf_event controller, which perf needs";
                opening.unavailable_all(&group, reason);
                continue;
            };
            let needed =
                group.len() * if matches!(target, PerfTarget::Process(_)) { 1 } else { host.cpus.len() };
            if descriptors + needed > host.perf_descriptors {
                let reason = "the job's budget of perf descriptors is used up; raise perf_fd_limit, or LimitNOFILE where \
                              that is less, or sample fewer events";
                opening.unavailable_all(&group, reason);
                continue;
            }
            let (source, missing) = PerfSource::open(target, &group, host.cpus, &host.mounts.tracefs);
            missing.into_iter().for_each(|missing| opening.unavailable(missing.definition, missing.reason));
            if let Some(source) = source {
                descriptors += source.descriptors();
                opening.push(format!("perf/{}", host.first_perf_group + number), Source::Perf(source));
            }
        }
    }
}
