//! Demands of jobs whose agents use another collector than the agents of the devices: each collector stores
//! what jobs on its nodes ask for, and finds what others have stored.

use polymeter_proto::control::Request;
use polymeter_proto::period::Period;
use polymeter_store::{ControlRequest, NewControlRequest, StoredControlRequest};

use super::demand_table::{Demand, JobOwner};
use super::demands::demand_line;
use super::job_requests::JobRequests;
use crate::limits;

impl JobRequests {
    /// Stores the demands that are new, have changed, have ended or must be repeated.
    pub(super) async fn share_demands(&self) {
        let now = self.clock.now();
        let lasts_us = i64::try_from(limits::DEMAND_TIME.as_micros()).unwrap_or(i64::MAX);
        for (owner, demand) in self.demands.share(now) {
            let Some(line) = demand_line(&owner.job, &demand, now.wall_us) else { continue };
            let request = ControlRequest {
                collector_id: self.store.collector_id().to_owned(),
                job_id: owner.job.to_string(),
                uid: owner.uid,
                line: line.as_str().to_owned(),
                is_lasting: false,
                at_us: now.wall_us,
                expires_us: now.wall_us.saturating_add(lasts_us),
            };
            // What is not stored now is stored when it is repeated.
            let request_id = self.store.request_id();
            self.store.take(NewControlRequest { request_id, request, wanted: Vec::new() }).await;
        }
    }

    /// Takes a stored demand over. Returns false if it is another request.
    pub(super) fn take_shared(&self, stored: &StoredControlRequest) -> bool {
        let ControlRequest { collector_id, uid, line, at_us, .. } = &stored.request;
        let Ok(Request::Demand(request)) = Request::parse(line.as_bytes()) else { return false };
        if collector_id != self.store.collector_id()
            && let Ok(job) = request.job.as_str().try_into()
        {
            let lasts = request.duration.and_then(|text| text.parse().ok()).map(Period::as_micros);
            let plan = request.plan.into_iter();
            let plan = plan.filter_map(|(selector, period)| Some((selector, period.parse().ok()?))).collect();
            let nodes = request.nodes.into_iter().collect();
            let demand = Demand { nodes, plan, until_us: at_us.saturating_add_unsigned(lasts.unwrap_or(0)) };
            self.demands.take_elsewhere(collector_id, JobOwner { job, uid: *uid }, demand);
        }
        true
    }
}
