//! `demand`: what a job asks of devices that this agent polls, as the collector says.

use polymeter_proto::control::{Answer, DemandRequest, Refusal, duration_us, identifier, invalid};

use super::plan_rules::leased_metrics;
use super::{Execute, lease};
use crate::control::request_handler::RequestHandler;
use crate::plan::is_of_devices;
use crate::principal::Principal;
use crate::request::{DemandSpec, SupervisorRequest};

impl Execute for DemandRequest {
    type Spec = DemandSpec;

    fn parse(self, principal: Principal) -> Result<DemandSpec, Refusal> {
        let metrics = leased_metrics("plan", &self.plan)?;
        if let Some((selector, _)) = metrics.iter().find(|(selector, _)| !is_of_devices(selector)) {
            return Err(invalid("plan", &format!("{selector} selects no metrics of devices alone")));
        }
        Ok(DemandSpec {
            // The limits hold for everyone: administrators have the socket of this agent.
            principal: Principal { administrator: false, ..principal },
            job_id: identifier("job", &self.job)?,
            nodes: self.nodes.into_iter().collect(),
            metrics,
            duration_us: duration_us("for", self.duration.as_deref())?,
        })
    }

    async fn execute(spec: DemandSpec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let granted = handler.ask(|reply| SupervisorRequest::Demand(Box::new(spec), reply)).await?;
        let granted = granted.map_err(|error| lease::refuse(handler, None, &error))?;
        Ok(granted.map_or(Answer::Done {}, lease::granted))
    }
}
