//! Thread that sends the sums to the agent.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{Scale, monotonic_ns};
use crate::limits::{ANSWER_WAIT, BUSY_PAUSE, FLUSH_WAIT, INTERVAL, LONGEST_INTERVAL, UNMATCHED};
use crate::message::{self, Times};
use crate::process::Process;
use crate::registry::Sums;

const ANSWER_BYTES: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Accepted,
    /// Too many processes of the user ask at once.
    Busy,
    /// Refused, or there is no agent.
    No,
}

struct Sender {
    process: &'static Process,
    /// What was sent last for each region, by name. Values never decrease, whatever the scale of ticks does.
    sent: HashMap<&'static [u8], Times>,
    /// True if the agent has not accepted what was sent last.
    is_pending: bool,
}

pub(crate) fn run(process: &'static Process) {
    let mut sender = Sender { process, sent: HashMap::new(), is_pending: false };
    let mut interval = INTERVAL;
    // The processes of a node do not ask all at once.
    let stagger = Duration::from_millis(u64::from(process.destination.process % 500));
    let mut wait = interval / 2 + stagger;
    loop {
        let asked = process.wait_for_flush(wait);
        let answer = sender.send(asked.is_some_and(|flush| flush.is_last), asked.is_some());
        interval = match answer {
            Answer::Accepted => INTERVAL,
            Answer::Busy | Answer::No => (interval * 2).min(LONGEST_INTERVAL),
        };
        wait = interval;
        if let Some(flush) = asked {
            process.answer_flush(flush, answer == Answer::Accepted);
        }
    }
}

impl Sender {
    /// Sends what has changed. While the program waits, a busy agent is asked again.
    fn send(&mut self, is_last: bool, is_awaited: bool) -> Answer {
        let changed = self.changed();
        if changed.is_empty() {
            return Answer::Accepted;
        }
        let line = message::line(&self.process.destination, &changed, is_last);
        let attempts = if is_awaited { FLUSH_WAIT.as_millis() / BUSY_PAUSE.as_millis() } else { 1 };
        let mut answer = Answer::No;
        for _ in 0..attempts {
            answer = exchange(self.process, &line).unwrap_or(Answer::No);
            if answer != Answer::Busy {
                break;
            }
            pause(BUSY_PAUSE + Duration::from_millis(monotonic_ns() % 10));
        }
        // A refused request may have been recorded in part: what is sent next is everything.
        self.is_pending = answer != Answer::Accepted;
        answer
    }

    /// Regions whose sums have changed since they were accepted.
    fn changed(&mut self) -> Vec<(&'static [u8], Times)> {
        let clock = self.process.clock;
        let (sums, unmatched) = {
            let registry = self.process.registry();
            (registry.sums(clock), registry.unmatched())
        };
        let scale = clock.scale();
        let mut all: Vec<_> = sums.iter().map(|(name, sums)| (*name, times(sums, scale))).collect();
        if unmatched > 0 {
            all.push((UNMATCHED.as_bytes(), Times { entries: unmatched, ..Times::default() }));
        }
        let is_pending = self.is_pending;
        all.retain_mut(|(name, times)| {
            let sent = self.sent.entry(*name).or_default();
            let before = *sent;
            sent.raise(times);
            *times = *sent;
            is_pending || before != *sent
        });
        all
    }
}

impl Times {
    fn raise(&mut self, other: &Self) {
        self.entries = self.entries.max(other.entries);
        self.time_ns = self.time_ns.max(other.time_ns);
        self.self_ns = self.self_ns.max(other.self_ns);
        self.thread_ns = self.thread_ns.max(other.thread_ns);
        self.threads = self.threads.max(other.threads);
    }
}

fn times(sums: &Sums, scale: Scale) -> Times {
    Times {
        entries: sums.counts.entries,
        time_ns: scale.ns(sums.counts.time),
        self_ns: scale.ns(sums.counts.own),
        thread_ns: scale.ns(sums.longest),
        threads: sums.threads,
    }
}

fn pause(wait: Duration) {
    let nothing = Mutex::new(());
    let guard = nothing.lock().unwrap_or_else(PoisonError::into_inner);
    drop(Condvar::new().wait_timeout(guard, wait));
}

/// Sends a request over a connection of its own, since connections of a user are few, and reads the answer.
fn exchange(process: &Process, line: &str) -> std::io::Result<Answer> {
    let mut stream = UnixStream::connect(&process.destination.socket)?;
    stream.set_write_timeout(Some(ANSWER_WAIT))?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    stream.write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream.take(ANSWER_BYTES)).read_line(&mut answer)?;
    Ok(if answer.contains("\"answer\":\"done\"") {
        Answer::Accepted
    } else if answer.contains("\"code\":\"busy\"") {
        Answer::Busy
    } else {
        Answer::No
    })
}
