//! Look-ups of users in the name service, beside the loop: an answer may take seconds.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::series::{Identifier, JobHandle};
use polymeter_service::users;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinSet, spawn_blocking};

use crate::lifecycle::FoundJob;
use crate::request::{AnnouncementReply, JobSpec, RegistrationReply, StartSpec};
use crate::targets::TargetKey;

/// Longest wait for the name service. After that the user counts as unknown.
pub(super) const NAME_SERVICE: Duration = Duration::from_secs(2);

/// Most threads that ask the name service. Beyond that a user counts as unknown; unknown owners are looked up
/// again later.
const THREADS: usize = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct User {
    pub(super) uid: Option<u32>,
    pub(super) name: Option<Identifier>,
    /// True if the name that the name service has for the numeric id is wanted.
    pub(super) wants_name: bool,
}

#[derive(Debug)]
pub(crate) enum Purpose {
    Job(JobPurpose),
    Register(Box<JobSpec>, RegistrationReply),
    Announce(Box<StartSpec>, AnnouncementReply),
}

#[derive(Debug)]
pub(crate) enum JobPurpose {
    /// Job with its number, if that was needed.
    Discover(FoundJob, Option<Identifier>),
    Complete(TargetKey, JobHandle),
}

impl From<JobPurpose> for Purpose {
    fn from(purpose: JobPurpose) -> Self {
        Self::Job(purpose)
    }
}

impl Purpose {
    /// What must not be looked up twice at a time.
    fn subject(&self) -> Option<Subject> {
        match self {
            Self::Job(JobPurpose::Discover(found, _)) => Some(Subject::Found(found.relative.clone())),
            Self::Job(JobPurpose::Complete(_, job)) => Some(Subject::Tracked(*job)),
            Self::Register(..) | Self::Announce(..) => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Found(PathBuf),
    Tracked(JobHandle),
}

#[derive(Debug)]
pub(crate) struct LookedUp<P> {
    pub(crate) purpose: P,
    pub(crate) uid: Option<u32>,
    pub(crate) name: Option<Identifier>,
}

#[derive(Debug)]
pub(super) struct OwnerLookups {
    running: JoinSet<LookedUp<Purpose>>,
    subjects: BTreeSet<Subject>,
    /// A permit for each further thread.
    threads: Arc<Semaphore>,
    patience: Duration,
}

impl OwnerLookups {
    /// Waits for each answer of the name service for at most `patience`.
    pub(super) fn new(patience: Duration) -> Self {
        let threads = Arc::new(Semaphore::new(THREADS));
        Self { running: JoinSet::new(), subjects: BTreeSet::new(), threads, patience }
    }

    /// Looks a user up. Returns the result if the name service is not needed, or if all threads are busy;
    /// otherwise [`Self::next`] returns it. A job that is being looked up is not looked up again.
    pub(super) fn start<P: Into<Purpose>>(&mut self, user: User, purpose: P) -> Option<LookedUp<P>> {
        let is_complete = if user.uid.is_some() { !user.wants_name } else { user.name.is_none() };
        let thread = if is_complete { None } else { Arc::clone(&self.threads).try_acquire_owned().ok() };
        let Some(thread) = thread else { return Some(LookedUp { purpose, uid: user.uid, name: None }) };
        let purpose = purpose.into();
        if purpose.subject().is_none_or(|subject| self.subjects.insert(subject)) {
            self.running.spawn(look_up(user, purpose, thread, self.patience));
        }
        None
    }

    /// Next result; none if no look-up is under way.
    pub(super) async fn next(&mut self) -> Option<LookedUp<Purpose>> {
        let looked_up = self.running.join_next().await?.ok()?;
        if let Some(subject) = looked_up.purpose.subject() {
            self.subjects.remove(&subject);
        }
        Some(looked_up)
    }
}

async fn look_up(
    user: User,
    purpose: Purpose,
    thread: OwnedSemaphorePermit,
    patience: Duration,
) -> LookedUp<Purpose> {
    let given = user.uid;
    let asked = spawn_blocking(move || {
        // A thread that hangs keeps its permit.
        let _permit = thread;
        ask(user)
    });
    let answer = tokio::time::timeout(patience, asked).await.map(Result::ok);
    let (uid, name) = answer.ok().flatten().unwrap_or((given, None));
    LookedUp { purpose, uid, name }
}

fn ask(user: User) -> (Option<u32>, Option<Identifier>) {
    let uid = user.uid.or_else(|| users::uid_of(user.name?.as_str()));
    let name = uid.filter(|_| user.wants_name).and_then(users::name_of);
    (uid, name.and_then(|name| Identifier::escaped(name.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> User {
        User { uid: None, name: Identifier::try_from(name).ok(), wants_name: true }
    }

    fn complete(job: u32) -> JobPurpose {
        JobPurpose::Complete(None, JobHandle(job))
    }

    #[tokio::test]
    async fn a_known_user_needs_no_look_up() {
        let mut lookups = OwnerLookups::new(Duration::from_secs(600));
        let known = User { uid: Some(7), ..User::default() };
        assert_eq!(lookups.start(known, complete(1)).map(|looked_up| looked_up.uid), Some(Some(7)));
        assert_eq!(lookups.start(User::default(), complete(1)).map(|looked_up| looked_up.uid), Some(None));
        assert!(lookups.next().await.is_none());
    }

    #[tokio::test]
    async fn a_job_is_looked_up_once_at_a_time() {
        let mut lookups = OwnerLookups::new(Duration::from_secs(600));
        for _ in 0..2 {
            assert!(lookups.start(named("root"), complete(1)).is_none());
            assert!(lookups.start(named("root"), complete(1)).is_none());
            let looked_up = lookups.next().await.unwrap();
            assert_eq!((looked_up.uid, looked_up.name), (Some(0), Identifier::try_from("root").ok()));
            assert!(lookups.next().await.is_none());
        }
    }

    #[tokio::test]
    async fn a_user_beyond_the_limit_is_unknown() {
        let mut lookups = OwnerLookups::new(Duration::from_secs(600));
        let limit = u32::try_from(THREADS).unwrap();
        assert!((0..limit).all(|job| lookups.start(named("root"), complete(job)).is_none()));
        assert_eq!(lookups.start(named("root"), complete(limit)).map(|looked_up| looked_up.uid), Some(None));
        for _ in 0..limit {
            assert_eq!(lookups.next().await.unwrap().uid, Some(0));
        }
        assert!(lookups.start(named("root"), complete(limit)).is_none());
    }
}
