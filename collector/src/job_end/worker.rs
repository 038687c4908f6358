//! Work for one end: the report, and the command.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use polymeter_service::clock::Clock;
use polymeter_service::log::chain;
use polymeter_store::reader::ReadCancel;
use polymeter_store::{ClaimedEnd, StoreUrl};
use rustix::process::geteuid;
use tracing::debug;

use super::child::{End, Ended, Invocation};
use super::command_file;
use super::command_input::{Input, gather_input};
use super::command_log::ProblemLog;
use super::config::JobEndConfig;
use super::counters::{Counters, RunResult};
use crate::shutdown::Shutdown;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Finish,
    /// The store failed.
    Retry,
    /// The collector stops.
    Release,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) end: ClaimedEnd,
    pub(super) next: Next,
}

/// None while the worker has no connection.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedCancel(Arc<Mutex<Option<ReadCancel>>>);

impl SharedCancel {
    fn set(&self, cancel: Option<ReadCancel>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cancel;
    }

    pub(super) fn cancel(&self) {
        let cancel = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(cancel) = cancel {
            cancel.cancel();
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) config: Arc<JobEndConfig>,
    pub(super) store: StoreUrl,
    pub(super) counters: Counters,
    pub(super) log: ProblemLog,
    pub(super) clock: Clock,
    pub(super) shutdown: Shutdown,
}

pub(super) fn work(context: &Context, end: ClaimedEnd, cancel: &SharedCancel, done: &SyncSender<Done>) {
    let next = context.run(&end, cancel);
    context.counters.running.dec();
    // The runner is there until all workers have ended, except at the end of the process.
    done.send(Done { end, next }).ok();
}

impl Context {
    fn run(&self, end: &ClaimedEnd, cancel: &SharedCancel) -> Next {
        // The file may have changed since the start.
        if let Some(fault) = command_file::fault(&self.config.program, Some(geteuid().as_raw())) {
            self.counters.count(RunResult::Failed);
            self.log.problem(&fault, "the report of this job is not passed on");
            return Next::Finish;
        }
        let input = gather_input(&self.store, end.job_key, &self.config.advice, &self.log, |connected| {
            cancel.set(Some(connected));
        });
        cancel.set(None);
        match input {
            Ok(Some(input)) => self.invoke(&input),
            Ok(None) => Next::Finish,
            Err(_) if self.shutdown.requested_at().is_some() => Next::Release,
            Err(error) => {
                self.log.problem(&chain(&error), "retrying automatically");
                Next::Retry
            }
        }
    }

    fn invoke(&self, input: &Input) -> Next {
        let invocation = Invocation {
            program: &self.config.program,
            arguments: &self.config.arguments,
            variables: &input.variables,
            input: &input.json,
            timeout: self.config.timeout,
        };
        let job = input.job_id.as_str();
        match invocation.run(self.clock, &self.shutdown) {
            Ok(Ended { end: End::Exited(status), .. }) if status.success() => {
                self.counters.count(RunResult::Succeeded);
                debug!(job, "the command of [job_end] ended");
            }
            Ok(Ended { end: End::Exited(status), errors }) => {
                self.failed(job, &format!("it ended with {status}"), &errors);
            }
            Ok(Ended { end: End::TimedOut, errors }) => {
                self.counters.count(RunResult::TimedOut);
                let problem = format!("it was killed after {} s", self.config.timeout.as_secs());
                self.log.command_failed(job, &problem, &errors);
            }
            Ok(Ended { end: End::Stopped, .. }) => return Next::Release,
            Err(error) => {
                self.failed(job, &format!("{}: {error}", self.config.program.display()), &[]);
            }
        }
        Next::Finish
    }

    fn failed(&self, job: &str, problem: &str, errors: &[u8]) {
        self.counters.count(RunResult::Failed);
        self.log.command_failed(job, problem, errors);
    }
}
