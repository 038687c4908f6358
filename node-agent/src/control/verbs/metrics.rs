//! `metrics`: the catalogue, as a job or the node has it.

use polymeter_proto::catalogue::{self, derived};
use polymeter_proto::control::{
    Answer, MetricLine, MetricsAnswer, MetricsRequest, Refusal, optional_identifier,
};
use polymeter_proto::series::{Identifier, Unit};

use super::Execute;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::{Availability, MetricView, SupervisorRequest};

impl Execute for MetricsRequest {
    type Spec = Option<Identifier>;

    fn parse(self, _: Principal) -> Result<Self::Spec, Refusal> {
        optional_identifier("job", self.job.as_deref())
    }

    async fn execute(job: Self::Spec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let metrics = handler
            .ask_about(job.as_ref(), |reply| {
                SupervisorRequest::Metrics(handler.principal, job.clone(), reply)
            })
            .await?;
        Ok(Answer::Metrics(MetricsAnswer { metrics: metrics.into_iter().map(line).collect() }))
    }
}

fn line(view: MetricView) -> MetricLine {
    let of_catalogue = || catalogue::find(&view.name).map(|definition| definition.metric.unit);
    let of_metric = view.unit.or_else(of_catalogue).map(Unit::as_str);
    let unit = of_metric.or_else(|| derived::find(&view.name).map(|derived| derived.unit));
    let (reason, source, read_ns, refresh_interval) = match view.availability {
        Availability::From { source, read_ns, refresh_interval } => {
            (None, Some(source), Some(read_ns.round()), refresh_interval)
        }
        Availability::Computed { from } => {
            (None, Some(format!("computed from {}", from.join(", "))), None, None)
        }
        Availability::NotNow => {
            (Some("its file does not contain this metric now".to_owned()), None, None, None)
        }
        Availability::No(reason) => (Some(reason), None, None, None),
    };
    MetricLine {
        unit: unit.map(str::to_owned),
        metric: view.name,
        available: reason.is_none(),
        reason,
        source,
        read_ns,
        refresh_interval: refresh_interval.map(|interval| interval.to_string()),
        period: view.period.map(|period| period.to_string()),
    }
}
