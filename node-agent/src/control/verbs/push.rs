//! `push`: a value of the user's own metric.

use polymeter_proto::control::{Answer, PushRequest, Refusal, identifier, invalid, optional_identifier};
use polymeter_proto::name::MetricName;
use polymeter_proto::series::{Kind, Labels, MetricDescriptor, Number, Unit};

use super::{Execute, annotation};
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::{PushSpec, SupervisorRequest};

const UNIT: &str = "unit";

impl Execute for PushRequest {
    type Spec = PushSpec;

    fn parse(self, principal: Principal) -> Result<PushSpec, Refusal> {
        let name = self.metric.strip_prefix("user.").unwrap_or(&self.metric);
        let metric = MetricName::new(format!("user.{name}")).map_err(|error| invalid("metric", &error))?;
        if !self.value.is_finite() {
            return Err(invalid("value", &"expected a finite number"));
        }
        if self.labels.contains_key(UNIT) {
            return Err(invalid("labels", &"the label `unit` is reserved; use the field `unit`"));
        }
        let unit = self.unit.map(|unit| identifier("unit", &unit)).transpose()?;
        let unit = unit.map(|unit| (UNIT.to_owned(), unit.as_str().to_owned()));
        let labels = Labels::new(self.labels.into_iter().chain(unit).collect());
        Ok(PushSpec {
            principal,
            job_id: optional_identifier("job", self.job.as_deref())?,
            metric: MetricDescriptor {
                name: metric,
                unit: Unit::Labelled,
                kind: Kind::Gauge,
                number: Number::Float,
            },
            value: self.value,
            labels: labels.map_err(|error| invalid("labels", &error))?,
        })
    }

    async fn execute(push: PushSpec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let job = push.job_id.clone();
        let pushed = handler.ask(|reply| SupervisorRequest::Push(Box::new(push), reply)).await?;
        pushed.map_err(|error| annotation::refuse(handler, job.as_ref(), error))?;
        Ok(Answer::Done {})
    }
}
