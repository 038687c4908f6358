//! `register`: a job that discovery does not find by itself.

use std::path::Component;

use polymeter_proto::control::{
    Answer, Refusal, RegisterRequest, RegisteredAnswer, identifier, invalid, optional_identifier,
};
use polymeter_proto::ledger::{JobDetails, JobFacts};

use super::Execute;
use super::plan_rules::rules;
use crate::control::request_handler::RequestHandler;
use crate::plan::Layer;
use crate::principal::Principal;
use crate::request::{JobSpec, RegisterError, SupervisorRequest};

impl Execute for RegisterRequest {
    type Spec = JobSpec;

    fn parse(self, _: Principal) -> Result<JobSpec, Refusal> {
        if let Some(path) = self
            .cgroups
            .iter()
            .find(|path| !path.is_absolute() || path.components().any(|part| part == Component::ParentDir))
        {
            let message =
                format!("`{}` is not valid: expected an absolute path without `..`", path.display());
            return Err(invalid("cgroups", &message));
        }
        Ok(JobSpec {
            job_id: identifier("job", &self.job)?,
            cluster: optional_identifier("cluster", self.cluster.as_deref())?,
            owner_uid: self.uid,
            owner: optional_identifier("user", self.user.as_deref())?,
            cgroups: self.cgroups,
            process: self.process,
            sampling: Layer::new(rules("plan", &self.plan)?),
            facts: JobFacts::default(),
            details: JobDetails::default(),
        })
    }

    async fn execute(job: JobSpec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let registered = handler.ask(|reply| SupervisorRequest::Register(Box::new(job), reply)).await?;
        let unavailable = registered.map_err(|error| refuse(&error))?;
        Ok(Answer::Registered(RegisteredAnswer { unavailable }))
    }
}

/// Refusal of a job, also for `start`.
pub(super) fn refuse(error: &RegisterError) -> Refusal {
    let (code, field) = match error {
        RegisterError::Known => ("known_job", Some("job")),
        RegisterError::TooMany => ("too_many", None),
        RegisterError::NoSuchCgroup(_) | RegisterError::NoCgroup => ("invalid", Some("cgroups")),
    };
    Refusal::new(code, field, &error.to_string())
}
