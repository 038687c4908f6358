//! Notices to persons about running and ended jobs.
//!
//! ```text
//! summaries: report of a job -> rules -> claim in the store -> mail, request to a server, command -> result
//! ```
//!
//! A trigger that fired and is to be noticed comes from the writers, and is sent in the same way.
//!
//! The rules are those of advice, with other defaults. A notice is claimed in the store before it is sent, so
//! that there is one for a job and rule, of several collectors and after restarts.

mod config;
mod deliver;
mod fired;
mod message;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::time::Duration;

use polymeter_analysis::advice::Advice;
use polymeter_analysis::advice::facts::Facts;
use polymeter_analysis::expression::Value;
use polymeter_analysis::model::{Finding, Report};
use polymeter_analysis::runs::whole_of;
use polymeter_service::clock::{Clock, realtime_us};
use polymeter_store::reader::{JobFilter, JobRow, Read, UsageGroup};
use polymeter_store::{NewNotice, NoticeClaim, NoticeTable, StoreError, StoreUrl};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tracing::{info, warn};

use self::deliver::Delivery;
use self::message::Message;
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;

pub use self::config::{Action, NoticesConfig};
pub(crate) use self::fired::{NoticedFiring, NoticedReceiver, NoticedSender, Sharer, noticed_queue};

/// Added by the collector: it is about the owner of a job.
const OF_OWNER: &str = "owner_wasted_core_hours";

const WEEK_NS: i64 = 7 * 86_400 * 1_000_000_000;

/// Notices that wait for their second try. Of more, the first try counts.
const WAITING_MAX: usize = 1000;

type Label = [(&'static str, &'static str); 1];

pub(crate) struct Notices {
    config: NoticesConfig,
    clock: Clock,
    shutdown: Shutdown,
    sent: Family<Label, Counter>,
    waiting: RefCell<VecDeque<Sent>>,
    noticed: NoticedReceiver,
    /// The one that was taken last, until it is done.
    fired: RefCell<Option<NoticedFiring>>,
    /// Actions that took too long, by name, each with the time of the next try. Without it, a server that
    /// does not answer would delay the summaries of all jobs.
    paused: RefCell<BTreeMap<&'static str, Duration>>,
}

struct Sent {
    number: i64,
    message: Message,
    to: Option<String>,
    results: Vec<(Action, Result<(), String>)>,
    retry_at: Duration,
}

impl Sent {
    fn has_failed(&self) -> bool {
        self.results.iter().any(|(_, result)| result.is_err())
    }

    /// Results of the actions, as they are listed.
    fn text(&self, tries: &str) -> String {
        let texts = self.results.iter().map(|(action, result)| match result {
            Ok(()) => format!("{}: sent", action.name()),
            Err(error) => format!("{}: failed {tries}: {error}", action.name()),
        });
        texts.collect::<Vec<_>>().join("; ")
    }
}

/// Faults of the files that the settings name: rules, and the text.
pub fn faults(config: &NoticesConfig) -> Vec<String> {
    let (_, rules) = Advice::notices(&config.rules);
    let mut faults: Vec<String> = rules.0.iter().map(ToString::to_string).collect();
    if let Some(path) = &config.text {
        match fs::read_to_string(path) {
            Ok(text) => faults.extend(message::unknown_names(&text).into_iter().map(|name| {
                format!("{}: unknown value {{{name}}}; see docs/how-to/notices.md", path.display())
            })),
            Err(error) => faults.push(format!("cannot read {}: {error}", path.display())),
        }
    }
    faults
}

impl Notices {
    pub(crate) fn new(
        (config, noticed): (&NoticesConfig, NoticedReceiver),
        metrics: &Metrics,
        clock: Clock,
        shutdown: &Shutdown,
    ) -> Self {
        let sent = Family::<Label, Counter>::default();
        for result in ["sent", "failed", "dry_run"] {
            drop(sent.get_or_create(&[("result", result)]));
        }
        metrics.register("notices", "Notices to persons, by result", sent.clone());
        Self {
            config: config.clone(),
            clock,
            shutdown: shutdown.clone(),
            sent,
            waiting: RefCell::default(),
            noticed,
            fired: RefCell::default(),
            paused: RefCell::default(),
        }
    }

    /// Time between two examinations of a running job.
    pub(crate) const fn interval(&self) -> Duration {
        self.config.interval
    }

    /// Applies the rules to the report of a job, and sends what is new.
    pub(crate) fn consider(
        &self,
        store: &StoreUrl,
        reader: &mut dyn Read,
        job: &JobRow,
        report: &Report,
    ) -> Result<(), StoreError> {
        // The files may have changed since the last job; a file with faults is left out.
        let (rules, faults) = Advice::notices(&self.config.rules);
        for fault in &faults.0 {
            warn!(%fault, "file of rules of notices ignored");
        }
        let mut facts = Facts::of(report);
        if report.ended
            && rules.rules().iter().any(|rule| rule.when.names().iter().any(|name| name == OF_OWNER))
        {
            facts.set(OF_OWNER, self.wasted(reader, job)?.map(Value::Number));
        }
        let findings = rules.findings(&facts);
        if findings.is_empty() {
            return Ok(());
        }
        let text = self.config.text.as_deref().and_then(read_text);
        let scheduler = rules.scheduler().or_else(|| report.likely_scheduler());
        let mut table = NoticeTable::open(store)?;
        for finding in &findings {
            let is_of_owner = finding.figures.contains_key(OF_OWNER);
            let remedy = finding.remedy(scheduler);
            let message =
                Message::of(finding, job, remedy.as_deref(), text.as_deref().unwrap_or(message::TEXT));
            self.send(&mut table, finding, &message, job, &about(job, is_of_owner))?;
        }
        Ok(())
    }

    /// Sends what is new of the triggers that fired.
    pub(crate) fn notice_fired(&self, store: &StoreUrl, reader: &mut dyn Read) -> Result<(), StoreError> {
        let mut fired = self.fired.borrow_mut();
        // What comes meanwhile waits for the next round.
        for _ in 0..=self.noticed.len() {
            if self.shutdown.requested_at().is_some() {
                break;
            }
            // After an error of the store, the one before it is not done.
            let Some(noticed) = fired.take().or_else(|| self.noticed.take()) else { break };
            let NoticedFiring { job_key, firing } = fired.insert(noticed);
            let filter = JobFilter { job_key: Some(*job_key), limit: 1, ..JobFilter::default() };
            if let Some(job) = reader.jobs(&filter)?.pop() {
                let finding = fired::finding_of(firing);
                let text = self.config.text.as_deref().and_then(read_text);
                let message = Message::of(&finding, &job, None, text.as_deref().unwrap_or(message::TEXT));
                self.send(&mut NoticeTable::open(store)?, &finding, &message, &job, &about(&job, false))?;
            }
            *fired = None;
        }
        Ok(())
    }

    /// Core-hours wasted by jobs of the owner that ended in the last week.
    fn wasted(&self, reader: &mut dyn Read, job: &JobRow) -> Result<Option<f64>, StoreError> {
        let Some(owner_uid) = job.owner_uid else { return Ok(None) };
        let now_ns = realtime_us().saturating_mul(1000);
        let filter = JobFilter { owner_uid: Some(owner_uid), limit: 1, ..JobFilter::default() };
        let sums = reader.usage(UsageGroup::All, now_ns.saturating_sub(WEEK_NS)..now_ns, &filter)?;
        Ok(sums.first().map(|sum| sum.wasted_core_s / 3600.0))
    }

    fn send(
        &self,
        table: &mut NoticeTable,
        finding: &Finding,
        message: &Message,
        job: &JobRow,
        about: &str,
    ) -> Result<(), StoreError> {
        let to =
            message.user.as_deref().and_then(|user| message::address(user, self.config.domain.as_deref()));
        let notice = NewNotice {
            rule: finding.id.clone(),
            about: about.to_owned(),
            job_key: job.job_key,
            uid: job.owner_uid,
            recipient: to.clone().or_else(|| job.owner.clone()).unwrap_or_default(),
            subject: message.subject.clone(),
            text: message.text.clone(),
        };
        let NoticeClaim::Send(number) = table.claim(&notice)? else { return Ok(()) };
        if self.config.dry_run {
            self.count("dry_run");
            return table.finish(number, "dry run: not sent");
        }
        let retry_at = Duration::ZERO;
        let mut sent = Sent { number, message: message.clone(), to, results: Vec::new(), retry_at };
        for action in &self.config.actions {
            let result = self.execute(*action, &sent.message, sent.to.as_deref());
            sent.results.push((*action, result));
        }
        sent.retry_at = self.clock.now().since_start + self.config.retry_after;
        table.finish(number, &sent.text("once"))?;
        if sent.has_failed() && self.waiting.borrow().len() < WAITING_MAX {
            self.waiting.borrow_mut().push_back(sent);
        } else {
            self.report(&sent, "once");
        }
        Ok(())
    }

    pub(crate) fn retry(&self, store: &StoreUrl) -> Result<(), StoreError> {
        let now = self.clock.now().since_start;
        while self.waiting.borrow().front().is_some_and(|sent| sent.retry_at <= now)
            && self.shutdown.requested_at().is_none()
        {
            let Some(mut sent) = self.waiting.borrow_mut().pop_front() else { break };
            for (action, result) in sent.results.iter_mut().filter(|(_, result)| result.is_err()) {
                *result = self.execute(*action, &sent.message, sent.to.as_deref());
            }
            NoticeTable::open(store)?.finish(sent.number, &sent.text("twice"))?;
            self.report(&sent, "twice");
        }
        Ok(())
    }

    fn execute(&self, action: Action, message: &Message, to: Option<&str>) -> Result<(), String> {
        let begin = self.clock.now().since_start;
        if self.paused.borrow().get(action.name()).is_some_and(|until| begin < *until) {
            return Err("not tried: that for another notice took too long".to_owned());
        }
        let delivery = Delivery { config: &self.config, clock: self.clock, shutdown: &self.shutdown };
        let result = delivery.send(action, message, to);
        let end = self.clock.now().since_start;
        if end.saturating_sub(begin) >= self.config.timeout {
            self.paused.borrow_mut().insert(action.name(), end + self.config.retry_after);
        }
        result
    }

    fn count(&self, result: &'static str) {
        self.sent.get_or_create(&[("result", result)]).inc();
    }

    fn report(&self, sent: &Sent, tries: &str) {
        let (rule, job) = (&sent.message.rule, &sent.message.job);
        if sent.has_failed() {
            self.count("failed");
            warn!(rule, job, error = sent.text(tries), "cannot send a notice");
        } else {
            self.count("sent");
            info!(rule, job, result = sent.text(tries), "notice");
        }
    }
}

/// Subject of a notice: the array of a job, or the job; for a rule about the owner, the owner and the week.
fn about(job: &JobRow, is_of_owner: bool) -> String {
    let uid = || job.owner_uid.map_or_else(|| "?".to_owned(), |uid| uid.to_string());
    if is_of_owner {
        return format!("user {} week {}", uid(), realtime_us().saturating_mul(1000) / WEEK_NS);
    }
    let cluster = job.cluster.as_deref().unwrap_or_default();
    match job.display_id.as_deref().and_then(whole_of) {
        Some(array) => format!("array {array} {cluster} user {}", uid()),
        None => format!("job {}", job.job_key),
    }
}

fn read_text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path);
    text.map_err(|error| warn!(path = %path.display(), %error, "cannot read the text of notices")).ok()
}
