//! Triggers that fired: the other nodes of the job are asked to keep the same interval.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::control::{KeepRequest, NodeAnswer, RoutedRequest};
use polymeter_proto::ledger::Firing;
use polymeter_proto::series::Identifier;
use polymeter_proto::text::Text;
use polymeter_store::accepted::Accepted;
use polymeter_store::{FiringTable, TableThread};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tracing::warn;

use super::job_requests::JobRequests;
use super::permission::ROOT;

/// Firings that wait.
const WAITING: usize = 256;

/// Firings for which nodes are being asked.
const ASKING: usize = 16;

/// Characters of a node's refusal that are stored.
const REASON_CHARACTERS: usize = 200;

/// A firing that the store has.
#[derive(Debug)]
pub(crate) struct StoredFiring {
    job_key: i64,
    job: Identifier,
    node: Identifier,
    firing: Firing,
}

/// Passes stored firings to control, and never waits.
#[derive(Debug, Clone)]
pub(crate) struct FiringSender(mpsc::Sender<StoredFiring>);

pub(crate) type FiringReceiver = mpsc::Receiver<StoredFiring>;

pub(crate) fn queue() -> (FiringSender, FiringReceiver) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (FiringSender(sender), receiver)
}

impl FiringSender {
    pub(crate) fn offer(&self, frames: &[Accepted]) {
        for frame in frames {
            let node = &frame.session.descriptor.node;
            for (job, firing) in &frame.fired {
                let id = &job.descriptor.job_id;
                if firing.notice {
                    warn!(job = %id, %node, trigger = %firing.rule, "trigger fired: {}; {}", firing.why, firing.actions);
                }
                let Some(job_key) = job.key.get() else { continue };
                let stored =
                    StoredFiring { job_key, job: id.clone(), node: node.clone(), firing: firing.clone() };
                if firing.keeps_us.is_some() && self.0.try_send(stored).is_err() {
                    warn!(job = %id, trigger = %firing.rule, "cannot ask the other nodes to keep the interval of a trigger: too many wait");
                }
            }
        }
    }
}

/// Asks for each firing, several at a time.
pub(super) async fn serve(
    mut firings: FiringReceiver,
    jobs: Arc<JobRequests>,
    table: TableThread<FiringTable>,
) {
    let places = Arc::new(Semaphore::new(ASKING));
    while let Some(stored) = firings.recv().await {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (jobs, table) = (Arc::clone(&jobs), table.clone());
        tokio::spawn(async move {
            ask(&jobs, &table, stored).await;
            drop(place);
        });
    }
}

async fn ask(jobs: &Arc<JobRequests>, table: &TableThread<FiringTable>, stored: StoredFiring) {
    let StoredFiring { job_key, job, node, firing } = stored;
    let Some(request) = request_of(&job, &node, &firing) else { return };
    let answers = match jobs.ask(ROOT, request).await {
        Ok(answer) => answer.nodes,
        Err(refusal) => {
            let why = refusal.message;
            warn!(%job, trigger = %firing.rule, "cannot ask the other nodes to keep the interval of a trigger: {why}");
            Vec::new()
        }
    };
    let others: Vec<&NodeAnswer> = answers.iter().filter(|answer| answer.node != node.as_str()).collect();
    let missing: BTreeMap<String, String> =
        others.iter().filter_map(|answer| Some((answer.node.clone(), reason(answer)?))).collect();
    if !missing.is_empty() {
        let names: Vec<&String> = missing.keys().collect();
        let names = polymeter_proto::text::abridged_list(&names, 4);
        warn!(%job, trigger = %firing.rule, "nodes that do not keep the interval of a trigger: {names}");
    }
    let (trigger, asked) = (firing.trigger, others.len() + 1);
    table.run(move |table| table.record(job_key, trigger, asked, &missing)).await;
}

fn request_of(job: &Identifier, node: &Identifier, firing: &Firing) -> Option<RoutedRequest> {
    let (begin_us, end_us) = firing.keeps_us?;
    let reason = Text::of(&format!("{} on {node}: {}", firing.rule, firing.why));
    let trigger = firing.trigger;
    RoutedRequest::keep(KeepRequest { job: job.to_string(), begin_us, end_us, trigger, reason }).ok()
}

/// Why a node does not keep the interval; none if it does.
fn reason(answer: &NodeAnswer) -> Option<String> {
    let Some(of_node) = &answer.answer else { return Some("no answer".to_owned()) };
    if of_node.get("answer").and_then(Value::as_str) == Some("done") {
        return None;
    }
    let message = of_node.get("message").and_then(Value::as_str).unwrap_or("unreadable answer");
    Some(message.chars().take(REASON_CHARACTERS).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_missing_unless_it_is_done() {
        let of = |answer| reason(&NodeAnswer { node: "n1".to_owned(), answer });
        assert_eq!(of(Some(json!({"answer": "done"}))), None);
        assert_eq!(of(None).as_deref(), Some("no answer"));
        let refused = json!({"answer": "refused", "code": "unavailable", "message": "the job has no ring"});
        assert_eq!(of(Some(refused)).as_deref(), Some("the job has no ring"));
    }
}
