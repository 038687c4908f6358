//! Values of running jobs: taken from the writers, given to the feeds of those jobs that are watched.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use polymeter_service::clock;
use polymeter_store::accepted::{Accepted, JobRecord};

use super::feed::{Feed, FeedRequest};
use super::mailbox::{Mailbox, Step};
use super::periods::Periods;

/// Clones share their streams.
#[derive(Debug, Clone, Default)]
pub struct LiveValues(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Number of streams: all that a writer looks at.
    streams: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Grouped by the store's key.
    jobs: HashMap<i64, Vec<Feed>>,
    is_stopping: bool,
}

impl LiveValues {
    /// Tells whether there are streams. Without them nothing else needs to be called.
    pub fn is_watched(&self) -> bool {
        // A stream reads from the store what was committed before it was noticed.
        self.0.streams.load(Ordering::Relaxed) > 0
    }

    /// Sends what frames contain to the streams. They must have been committed. Never waits for a client.
    pub fn publish(&self, frames: &[Accepted]) {
        let now_us = i64::try_from(clock::monotonic_ns() / 1000).unwrap_or(i64::MAX);
        let mut state = self.state();
        frames.iter().for_each(|frame| state.frame(frame, now_us));
        state.feeds().for_each(|feed| feed.send(now_us));
    }

    /// Reports that jobs may have ended, since their agents were lost.
    pub fn report_lost(&self, job_keys: &[i64]) {
        let state = self.state();
        for feed in job_keys.iter().filter_map(|key| state.jobs.get(key)).flatten() {
            feed.mailboxes.iter().for_each(|mailbox| mailbox.report_change());
        }
    }

    /// Reports that frames were not published, since publishing was slower than their commits.
    pub fn report_overflow(&self) {
        self.state().mailboxes().for_each(Mailbox::miss);
    }

    /// Ends all streams, and refuses further ones.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.is_stopping = true;
        state.mailboxes().for_each(Mailbox::stop);
    }

    /// Begins a stream, which gets the values of every commit from now on. Returns none while the collector
    /// stops.
    pub(crate) fn subscribe(&self, request: FeedRequest) -> Option<Subscription> {
        let mailbox = Arc::new(Mailbox::default());
        let mut state = self.state();
        if state.is_stopping {
            return None;
        }
        let feeds = state.jobs.entry(request.job_key).or_default();
        let of_stream = Arc::clone(&mailbox);
        match feeds.iter_mut().find(|feed| feed.request == request) {
            Some(feed) => feed.mailboxes.push(of_stream),
            None => {
                let mut feed = Feed::new(request.clone());
                feed.mailboxes.push(of_stream);
                feeds.push(feed);
            }
        }
        self.0.streams.fetch_add(1, Ordering::Relaxed);
        drop(state);
        Some(Subscription { values: self.clone(), request, mailbox })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is consistent at every point where a panic could occur.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn feeds(&mut self) -> impl Iterator<Item = &mut Feed> {
        self.jobs.values_mut().flatten()
    }

    fn mailboxes(&self) -> impl Iterator<Item = &Mailbox> {
        self.jobs.values().flatten().flat_map(|feed| &feed.mailboxes).map(|mailbox| &**mailbox)
    }

    fn feeds_of(&mut self, job: Option<&Arc<JobRecord>>) -> impl Iterator<Item = &mut Feed> {
        let key = job.and_then(|job| job.key.get());
        key.and_then(|key| self.jobs.get_mut(&key)).into_iter().flatten()
    }

    fn frame(&mut self, frame: &Accepted, now_us: i64) {
        for (job, change) in &frame.plan_changes {
            self.feeds_of(job.as_ref()).for_each(|feed| feed.plan_change(frame, change));
        }
        for block in &frame.samples {
            self.feeds_of(block.line.job.as_ref()).for_each(|feed| feed.samples(frame, block, now_us));
        }
        for (job, mark) in &frame.marks {
            self.feeds_of(job.as_ref()).for_each(|feed| feed.mark(frame, mark));
        }
        for loss in &frame.losses {
            match &loss.line {
                Some(line) => self.feeds_of(line.job.as_ref()).for_each(|feed| feed.loss(frame, loss)),
                None => self.feeds().for_each(|feed| feed.loss(frame, loss)),
            }
        }
        for (job, at_us) in &frame.job_ends {
            self.feeds_of(Some(job)).for_each(|feed| feed.job_end(frame, *at_us));
        }
    }
}

/// Keeps the stream's place in its feed until it is dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    values: LiveValues,
    request: FeedRequest,
    mailbox: Arc<Mailbox>,
}

impl Subscription {
    pub(crate) async fn next(&self) -> Step {
        self.mailbox.next().await
    }

    pub(crate) fn next_event(&self) -> Option<Bytes> {
        self.mailbox.take_event()
    }

    pub(crate) fn seed(&self, described: Vec<i64>, periods: Periods, nodes: Vec<String>) {
        let mut state = self.values.state();
        let mut feeds = state.jobs.get_mut(&self.request.job_key).into_iter().flatten();
        if let Some(feed) = feeds.find(|feed| feed.request == self.request) {
            feed.seed(described, periods, nodes);
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.values.state();
        if let Some(feeds) = state.jobs.get_mut(&self.request.job_key) {
            for feed in feeds.iter_mut() {
                feed.mailboxes.retain(|mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
            }
            feeds.retain(|feed| !feed.mailboxes.is_empty());
            if feeds.is_empty() {
                state.jobs.remove(&self.request.job_key);
            }
        }
        self.values.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
