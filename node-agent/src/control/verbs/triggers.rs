//! `triggers`: the triggers of a job, and what has fired.

use polymeter_proto::control::{Answer, FiringLine, Refusal, TriggerLine, TriggersAnswer, TriggersRequest};
use polymeter_proto::ledger::Firing;
use polymeter_proto::series::Identifier;

use super::Execute;
use super::trigger_add::job_of;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::SupervisorRequest;
use crate::triggers::Listed;

impl Execute for TriggersRequest {
    type Spec = (Principal, Identifier);

    fn parse(self, principal: Principal) -> Result<Self::Spec, Refusal> {
        Ok((principal, job_of(self.job.as_deref())?))
    }

    async fn execute((principal, job): Self::Spec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let view = handler
            .ask_about(Some(&job), |reply| SupervisorRequest::Triggers(principal, job.clone(), reply))
            .await?;
        Ok(Answer::Triggers(TriggersAnswer {
            triggers: view.triggers.iter().map(trigger_line).collect(),
            fired: view.fired.into_iter().map(firing_line).collect(),
        }))
    }
}

fn trigger_line(listed: &Listed) -> TriggerLine {
    TriggerLine {
        name: listed.rule.name.to_string(),
        when: listed.rule.when.to_string(),
        by: listed.by.and_then(Principal::name).map(|by| by.to_string()),
        actions: listed.rule.actions(),
        held_back: listed.held_back,
    }
}

fn firing_line(firing: Firing) -> FiringLine {
    FiringLine {
        trigger: firing.trigger,
        name: firing.rule.to_string(),
        at_us: firing.at_us,
        why: firing.why.into(),
        actions: firing.actions.into(),
    }
}
