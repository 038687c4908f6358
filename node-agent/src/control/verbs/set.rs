//! `set`: a lease.

use polymeter_proto::control::{Answer, Refusal, SetRequest, duration_us, invalid, optional_identifier};

use super::plan_rules::{check_level, check_ring, leased_metrics, ring_metrics};
use super::{Execute, lease};
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::{LeaseRequest, SupervisorRequest};

impl Execute for SetRequest {
    type Spec = LeaseRequest;

    fn parse(self, principal: Principal) -> Result<LeaseRequest, Refusal> {
        let job_id = optional_identifier("job", self.job.as_deref())?;
        let is_ring = self.ring;
        let metrics = match is_ring {
            true => ring_metrics("plan", &self.plan)?,
            false => leased_metrics("plan", &self.plan)?,
        };
        if metrics.is_empty() {
            return Err(invalid("plan", &"no metric selected; write \"plan\": {\"cpu.*\": \"10ms\"}"));
        }
        let duration_us = duration_us("for", self.duration.as_deref())?;
        let level = self.level;
        check_level(level, job_id.as_ref())?;
        if is_ring {
            check_ring(level, job_id.as_ref())?;
        }
        Ok(LeaseRequest {
            principal,
            job_id,
            level,
            is_ring,
            metrics,
            since_us: None,
            duration_us,
            demanded_by: None,
        })
    }

    async fn execute(request: LeaseRequest, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let request = LeaseRequest { since_us: handler.since_us, ..request };
        let job = request.job_id.clone();
        let granted = handler.ask(|reply| SupervisorRequest::Set(Box::new(request), reply)).await?;
        let grant = granted.map_err(|error| lease::refuse(handler, job.as_ref(), &error))?;
        Ok(lease::granted(grant))
    }
}
