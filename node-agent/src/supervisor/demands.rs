//! Demands of jobs on devices outside the nodes: the agent of a job reports them to its collector, which passes
//! them on to the agents of the devices that serve the node.

use polymeter_proto::control::{DeviceReport, JobDemand, REPORTED_BYTES};
use polymeter_proto::ledger::Event;
use polymeter_proto::name::Selector;
use tokio::sync::watch;
use tracing::warn;

use super::dispatcher::{Dispatcher, warn_of_missing};
use super::edge::{Edge, NodeEdge};
use crate::admission::Admission;
use crate::lanes::EventRecord;
use crate::request::{AccessError, DemandSpec, LeaseError, LeaseGrant, LeaseRequest};
use crate::sources::outside::OutsideDevices;
use crate::targets::Targets;

/// Keeps the report of this agent about devices up to date.
#[derive(Debug)]
pub(super) struct DeviceReporter {
    report: watch::Sender<DeviceReport>,
    /// Version of the devices of which `serves` are the nodes.
    version: Option<u64>,
    serves: Vec<String>,
}

impl DeviceReporter {
    pub(super) const fn new(report: watch::Sender<DeviceReport>) -> Self {
        Self { report, version: None, serves: Vec::new() }
    }

    pub(super) fn update(&mut self, targets: &Targets, devices: &OutsideDevices) {
        let version = Some(devices.version());
        let mut omitted = 0;
        if self.version != version {
            self.version = version;
            (self.serves, omitted) = within(devices.served_nodes(), String::len);
        }
        let (demands, omitted_demands) = within(demands(targets), bytes);
        let is_modified = self.report.send_if_modified(|report| {
            let is_modified = report.serves != self.serves || report.demands != demands;
            if is_modified {
                *report = DeviceReport { serves: self.serves.clone(), demands };
            }
            is_modified
        });
        if is_modified && omitted + omitted_demands > 0 {
            warn!(
                nodes = omitted,
                jobs = omitted_demands,
                "cannot tell the collector all nodes that devices serve, or all that jobs ask of devices; let several agents poll the devices"
            );
        }
    }
}

fn demands(targets: &Targets) -> impl Iterator<Item = JobDemand> {
    targets.iter().filter_map(|(key, target)| {
        let until_us = target.device_leases().map(|lease| lease.until_us).max()?;
        let plan = target.device_demands().into_iter();
        let plan = plan.map(|(selector, in_force)| (selector, in_force.sampling.to_string())).collect();
        Some(JobDemand { job: key.as_ref()?.to_string(), plan, until_us })
    })
}

fn bytes(demand: &JobDemand) -> usize {
    demand.job.len() + demand.plan.keys().map(String::len).sum::<usize>()
}

/// The first of some entries that a report has room for, and the number of the others.
fn within<T>(entries: impl IntoIterator<Item = T>, bytes: impl Fn(&T) -> usize) -> (Vec<T>, usize) {
    /// Bytes of an entry in JSON, beside its names.
    const ENTRY_BYTES: usize = 8;
    let (mut kept, mut used, mut omitted) = (Vec::new(), 0, 0);
    for entry in entries {
        used += bytes(&entry) + ENTRY_BYTES;
        if used <= REPORTED_BYTES {
            kept.push(entry);
        } else {
            omitted += 1;
        }
    }
    (kept, omitted)
}

impl Dispatcher<NodeEdge> {
    /// Samples devices that were added or have got other values, and leaves all others alone.
    pub(super) async fn follow_devices(&mut self) {
        let Some(node) = self.targets.get_mut(&None) else { return };
        let Some((sources, changes)) = self.edge.open_devices(node) else { return };
        warn_of_missing(&None, &changes.missing);
        self.tell_sampler(changes).await;
        let now = self.edge.now();
        let Some(node) = self.targets.get_mut(&None) else { return };
        for change in node.plan_changes_of(&sources, now) {
            self.record(EventRecord { job: None, event: Event::PlanChange(change) }).await;
        }
    }

    /// Samples those metrics of devices that a job asks for and that serve one of its nodes. Returns none
    /// where it does not ask for any more.
    pub(super) async fn demand(&mut self, spec: DemandSpec) -> Result<Option<LeaseGrant>, LeaseError> {
        let DemandSpec { principal, job_id, nodes, metrics, duration_us } = spec;
        let served = self.edge.outside.metrics_for(&nodes, &metrics);
        let is_served = |wanted: &Selector| served.iter().any(|(name, _)| wanted.matches(name.as_str()));
        let missing = metrics.iter().map(|(selector, _)| selector).filter(|selector| !is_served(selector));
        let missing: Vec<String> = missing.map(ToString::to_string).collect();
        if served.is_empty() {
            let ended = Admission::end_demand(&mut self.targets, principal, &job_id);
            self.follow_plans(ended).await;
            return if missing.is_empty() { Ok(None) } else { Err(LeaseError::NotServed(missing)) };
        }
        let request = LeaseRequest {
            principal,
            job_id: None,
            level: None,
            is_ring: false,
            metrics: served,
            since_us: None,
            // It is repeated anyway.
            duration_us: duration_us.map(|us| us.min(self.admission.longest_lease_us())),
            demanded_by: Some(job_id),
        };
        let read_times = self.edge.read_times();
        let renewed = self.admission.renew(&mut self.targets, &request, &read_times, self.edge.now());
        let mut granted = match renewed {
            Some(renewed) => renewed.finish(self.targets.get_mut(&None).ok_or(AccessError::Unknown)?)?,
            None => self.set(request).await?,
        };
        let reason = "no device that serves a node of the job has it";
        granted.unavailable.extend(missing.into_iter().map(|selector| (selector, reason.to_owned())));
        Ok(Some(granted))
    }
}
