//! Answers about running jobs that are expensive to compute, and may be some seconds old: many pages of a job
//! share them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use polymeter_store::reader::Access;

use crate::limits;

#[derive(Debug)]
struct Entry {
    access: Access,
    job_key: i64,
    computed_ns: u64,
    text: Arc<str>,
}

/// Newest answers about running jobs. Whoever asks for one must have checked that the user may still see the
/// job.
#[derive(Debug, Default)]
pub(crate) struct RecentAnswers(Mutex<VecDeque<Entry>>);

impl RecentAnswers {
    /// Returns the answer about a job to users with the same rights, unless it is too old. `now_ns` is the
    /// monotonic time.
    pub(crate) fn get(&self, access: &Access, job_key: i64, now_ns: u64) -> Option<Arc<str>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| now_ns.saturating_sub(entry.computed_ns) < limits::RECENT_AGE_NS);
        let found = entries.iter().find(|entry| entry.access == *access && entry.job_key == job_key);
        found.map(|entry| Arc::clone(&entry.text))
    }

    /// Forgets the oldest answer if there are too many.
    pub(crate) fn put(&self, access: Access, job_key: i64, text: &Arc<str>, now_ns: u64) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.access != access || entry.job_key != job_key);
        if entries.len() >= limits::RECENT_ANSWERS {
            entries.pop_front();
        }
        entries.push_back(Entry { access, job_key, computed_ns: now_ns, text: Arc::clone(text) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_for_the_same_rights_and_not_old() {
        let answers = RecentAnswers::default();
        answers.put(Access::All, 7, &"all".into(), 0);
        answers.put(Access::owner(5), 7, &"own".into(), 1);
        let of = |access: Access, job_key, now_ns| {
            answers.get(&access, job_key, now_ns).map(|text| text.to_string())
        };
        assert_eq!(of(Access::All, 7, 1).as_deref(), Some("all"));
        assert_eq!(of(Access::owner(5), 7, 1).as_deref(), Some("own"));
        assert_eq!((of(Access::owner(6), 7, 1), of(Access::All, 8, 1)), (None, None));
        assert_eq!(of(Access::All, 7, limits::RECENT_AGE_NS), None);
        assert_eq!(of(Access::owner(5), 7, limits::RECENT_AGE_NS).as_deref(), Some("own"));
        answers.put(Access::owner(5), 7, &"new".into(), 2);
        assert_eq!(of(Access::owner(5), 7, 2).as_deref(), Some("new"));
    }

    #[test]
    fn their_number_is_bounded() {
        let answers = RecentAnswers::default();
        let count = i64::try_from(limits::RECENT_ANSWERS).unwrap();
        (0..=count).for_each(|key| answers.put(Access::All, key, &"text".into(), 0));
        assert!(answers.get(&Access::All, 0, 0).is_none() && answers.get(&Access::All, count, 0).is_some());
    }
}
