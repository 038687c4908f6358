//! Triggers that fired: the other nodes of the job are asked to keep the same interval, and those that are to
//! be noticed go to notices. Those of the collector are stored first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polymeter_proto::control::{KeepRequest, NodeAnswer, RoutedRequest};
use polymeter_proto::ledger::Firing;
use polymeter_proto::series::Identifier;
use polymeter_proto::text::Text;
use polymeter_service::turns::Turns;
use polymeter_store::accepted::Accepted;
use polymeter_store::reader::FiringRow;
use polymeter_store::{FiringBounds, FiringTable, TableThread};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};
use tracing::warn;

use super::job_requests::JobRequests;
use super::permission::ROOT;
use crate::limits;
use crate::notices::{NoticedFiring, NoticedSender, Sharer};
use crate::stragglers::Straggler;

/// Firings that wait. The owners of the jobs share them and take turns: the nodes of one job can fire
/// thousands of times.
const WAITING: usize = 512;

/// Firings for which nodes are being asked.
const ASKING: usize = 16;

/// Characters of a node's refusal that are stored.
const REASON_CHARACTERS: usize = 200;

/// A firing of an agent, which the store has, or of the collector.
#[derive(Debug)]
pub(crate) struct NewFiring {
    job_key: i64,
    job: Identifier,
    owner_uid: Option<u32>,
    node: Identifier,
    firing: Firing,
    /// Of a firing of the collector, which may be that of another collector, too. None for one of an agent:
    /// its node keeps the interval of its own firing.
    bounds: Option<FiringBounds>,
}

/// Firings that wait.
#[derive(Debug)]
struct Waiting {
    firings: Mutex<Turns<Sharer, NewFiring>>,
    came: Notify,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Turns<Sharer, NewFiring>> {
        // The queue is consistent at every point where a panic could occur.
        self.firings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&self) -> NewFiring {
        loop {
            let next = self.lock().take();
            match next {
                Some(next) => return next,
                None => self.came.notified().await,
            }
        }
    }
}

/// Passes firings to control and to notices, and never waits.
#[derive(Debug, Clone)]
pub(crate) struct FiringSender {
    control: Arc<Waiting>,
    /// None without notices.
    notices: Option<NoticedSender>,
}

/// Firings that control handles.
#[derive(Debug)]
pub(crate) struct FiringReceiver {
    firings: Arc<Waiting>,
    notices: Option<NoticedSender>,
}

pub(crate) fn queue(notices: Option<NoticedSender>) -> (FiringSender, FiringReceiver) {
    let firings = Arc::new(Waiting { firings: Mutex::new(Turns::new(WAITING)), came: Notify::new() });
    (
        FiringSender { control: Arc::clone(&firings), notices: notices.clone() },
        FiringReceiver { firings, notices },
    )
}

impl FiringSender {
    pub(crate) fn offer(&self, frames: &[Accepted]) {
        for frame in frames {
            let node = &frame.session.descriptor.node;
            for (job, firing) in &frame.fired {
                let (id, owner_uid) = (&job.descriptor.job_id, job.descriptor.owner_uid);
                if firing.notice {
                    notice(self.notices.as_ref(), (job.key.get(), id, owner_uid), node, firing);
                }
                let Some(job_key) = job.key.get() else { continue };
                let (job, node, firing) = (id.clone(), node.clone(), firing.clone());
                if firing.keeps_us.is_some() {
                    self.send(NewFiring { job_key, job, owner_uid, node, firing, bounds: None });
                }
            }
        }
    }

    /// Takes a node that became a straggler as a firing on this node.
    pub(crate) fn offer_straggler(&self, straggler: &Straggler) {
        let Straggler { job, node, rule, at_us, why } = straggler;
        let Some(job_key) = job.key.get() else { return };
        let (id, node) = (job.descriptor.job_id.clone(), node.clone());
        let keeps_us =
            rule.keep_us.map(|keep_us| (at_us.saturating_sub(keep_us), at_us.saturating_add(rule.after_us)));
        let actions = keeps_us.map_or_else(
            || "noticed".to_owned(),
            |(begin_us, end_us)| {
                format!("asks all nodes to keep {} s", end_us.saturating_sub(begin_us) / 1_000_000)
            },
        );
        let firing = Firing {
            job: job.handle,
            trigger: trigger_number(job_key, *at_us),
            rule: rule.name.clone(),
            by: None,
            at_us: *at_us,
            keeps_us,
            notice: rule.notice,
            why: Text::of(why),
            actions: Text::of(&actions),
        };
        let bounds = Some(FiringBounds { hold_off_us: rule.hold_off_us, firings: rule.firings });
        let owner_uid = job.descriptor.owner_uid;
        self.send(NewFiring { job_key, job: id, owner_uid, node, firing, bounds });
    }

    fn send(&self, new: NewFiring) {
        let offered = self.control.lock().offer(Sharer::of(new.job_key, new.owner_uid), new);
        match offered {
            Ok(()) => self.control.came.notify_one(),
            Err(NewFiring { job, firing, .. }) => {
                let trigger = &firing.rule;
                warn!(
                    %job,
                    %trigger,
                    "cannot ask the nodes to keep the interval of a trigger: too many of this user wait; \
                     give the rule a longer `hold_off`"
                );
            }
        }
    }
}

/// Logs a firing, and passes it to notices.
fn notice(
    notices: Option<&NoticedSender>,
    (job_key, job, owner_uid): (Option<i64>, &Identifier, Option<u32>),
    node: &Identifier,
    firing: &Firing,
) {
    warn!(%job, %node, trigger = %firing.rule, "trigger fired: {}; {}", firing.why, firing.actions);
    let (Some(notices), Some(job_key)) = (notices, job_key) else { return };
    let noticed = NoticedFiring { job_key, firing: row(node, firing) };
    if !notices.offer(owner_uid, noticed) {
        warn!(
            trigger = %firing.rule,
            "cannot notice that a trigger fired: too many of this user wait; \
             give the rule a longer `hold_off`"
        );
    }
}

/// Number of a firing that no other has, and that a store can hold as a signed number.
fn trigger_number(job_key: i64, at_us: i64) -> u64 {
    let mut bytes = [0; 8];
    if getrandom(&mut bytes, GetRandomFlags::empty()).is_err() {
        return (at_us.unsigned_abs().rotate_left(8) ^ job_key.unsigned_abs()) >> 1;
    }
    u64::from_ne_bytes(bytes) >> 1
}

/// The firing as readers find it, before other nodes are asked.
fn row(node: &Identifier, firing: &Firing) -> FiringRow {
    FiringRow {
        time_ns: firing.at_us.saturating_mul(1000),
        node: node.to_string(),
        rule: firing.rule.to_string(),
        actor: firing.by.as_ref().map(ToString::to_string),
        why: firing.why.to_string(),
        actions: firing.actions.to_string(),
        trigger: firing.trigger.cast_signed(),
        begin_ns: firing.keeps_us.map(|(begin_us, _)| begin_us.saturating_mul(1000)),
        end_ns: firing.keeps_us.map(|(_, end_us)| end_us.saturating_mul(1000)),
        nodes_asked: None,
        nodes_missing: BTreeMap::new(),
    }
}

/// Asks for each firing, several at a time.
pub(super) async fn serve(
    FiringReceiver { firings, notices }: FiringReceiver,
    jobs: Arc<JobRequests>,
    table: TableThread<FiringTable>,
) {
    let places = Arc::new(Semaphore::new(ASKING));
    // The turn is chosen when there is a place.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let new = firings.next().await;
        let (jobs, table, notices) = (Arc::clone(&jobs), table.clone(), notices.clone());
        tokio::spawn(async move {
            if let Some(bounds) = new.bounds {
                let now = jobs.clock.now().since_start;
                let is_shared = jobs.others.ran_within(limits::OTHERS_AWAY, now);
                if !is_first(&table, &new, bounds, is_shared).await {
                    return;
                }
                if new.firing.notice {
                    let job = (Some(new.job_key), &new.job, new.owner_uid);
                    notice(notices.as_ref(), job, &new.node, &new.firing);
                }
            }
            if new.firing.keeps_us.is_some() {
                ask(&jobs, &table, new).await;
            }
            drop(place);
        });
    }
}

/// Stores a firing of the collector. Returns false if another collector has it, or may have it. What nodes
/// keep is of use even if it cannot be stored.
async fn is_first(
    table: &TableThread<FiringTable>,
    new: &NewFiring,
    bounds: FiringBounds,
    is_shared: bool,
) -> bool {
    let (job_key, node, firing) = (new.job_key, new.node.clone(), new.firing.clone());
    let stored = table.run(move |table| table.add(job_key, &node, &firing, bounds)).await;
    stored.unwrap_or_else(|| {
        let (job, trigger) = (&new.job, &new.firing.rule);
        warn!(%job, %trigger, "cannot store that a trigger fired: the store does not answer");
        !is_shared
    })
}

async fn ask(jobs: &Arc<JobRequests>, table: &TableThread<FiringTable>, new: NewFiring) {
    let NewFiring { job_key, job, owner_uid, node, firing, bounds } = new;
    let is_of_agent = bounds.is_none();
    let Some(request) = request_of((&job, owner_uid), &node, &firing) else { return };
    let answers = match jobs.ask(ROOT, request).await {
        Ok(answer) => answer.nodes,
        Err(refusal) => {
            let why = refusal.message;
            warn!(%job, trigger = %firing.rule, "cannot ask the other nodes to keep the interval of a trigger: {why}");
            Vec::new()
        }
    };
    let is_own = |answer: &&NodeAnswer| is_of_agent && answer.node == node.as_str();
    let others: Vec<&NodeAnswer> = answers.iter().filter(|answer| !is_own(answer)).collect();
    let missing: BTreeMap<String, String> =
        others.iter().filter_map(|answer| Some((answer.node.clone(), reason(answer)?))).collect();
    if !missing.is_empty() {
        let names: Vec<&String> = missing.keys().collect();
        let names = polymeter_proto::text::abridged_list(&names, 4);
        warn!(%job, trigger = %firing.rule, "nodes that do not keep the interval of a trigger: {names}");
    }
    let (trigger, asked) = (firing.trigger, others.len() + usize::from(is_of_agent));
    table.run(move |table| table.record(job_key, trigger, asked, &missing)).await;
}

fn request_of(
    (job, owner_uid): (&Identifier, Option<u32>),
    node: &Identifier,
    firing: &Firing,
) -> Option<RoutedRequest> {
    let (begin_us, end_us) = firing.keeps_us?;
    let reason = Text::of(&format!("{} on {node}: {}", firing.rule, firing.why));
    let (job, trigger) = (job.to_string(), firing.trigger);
    RoutedRequest::keep(KeepRequest { job, begin_us, end_us, trigger, reason, owner_uid }).ok()
}

/// Why a node does not keep the interval; none if it does.
fn reason(answer: &NodeAnswer) -> Option<String> {
    let Some(of_node) = &answer.answer else { return Some("no answer".to_owned()) };
    if of_node.get("answer").and_then(Value::as_str) == Some("keeps") {
        return None;
    }
    let message = of_node.get("message").and_then(Value::as_str).unwrap_or("unreadable answer");
    Some(message.chars().take(REASON_CHARACTERS).collect())
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::JobHandle;
    use serde_json::json;

    use super::*;

    fn new(owner: u32, number: i64) -> NewFiring {
        let firing = Firing {
            job: JobHandle(owner),
            trigger: number.unsigned_abs(),
            rule: "storm".try_into().unwrap(),
            by: None,
            at_us: number,
            keeps_us: Some((0, 1)),
            notice: false,
            why: Text::of("x"),
            actions: Text::of("y"),
        };
        let (job, node) = ("1".try_into().unwrap(), "n1".try_into().unwrap());
        NewFiring { job_key: 1, job, owner_uid: Some(owner), node, firing, bounds: None }
    }

    /// A thousand nodes of one user's jobs fire, more than control can handle.
    #[tokio::test]
    async fn a_storm_of_a_user_does_not_hold_back_others() {
        let (sender, receiver) = queue(None);
        for number in 0..10_000 {
            sender.send(new(1000, number));
        }
        sender.send(new(2000, 7));
        sender.send(new(3000, 8));
        let mut first = Vec::new();
        for _ in 0..3 {
            first.push(receiver.firings.next().await.firing.at_us);
        }
        assert_eq!(first, [0, 7, 8]);
        let mut rest = 0;
        while !receiver.firings.lock().is_empty() {
            receiver.firings.next().await;
            rest += 1;
        }
        assert_eq!(rest, WAITING / 2 - 1, "the storm is bounded");
    }

    #[test]
    fn a_node_is_missing_unless_it_keeps() {
        let of = |answer| reason(&NodeAnswer { node: "n1".to_owned(), answer });
        assert_eq!(of(Some(json!({"answer": "keeps", "samples": 7}))), None);
        assert_eq!(of(None).as_deref(), Some("no answer"));
        let refused = json!({"answer": "refused", "code": "unavailable", "message": "the job has no ring"});
        assert_eq!(of(Some(refused)).as_deref(), Some("the job has no ring"));
    }
}
