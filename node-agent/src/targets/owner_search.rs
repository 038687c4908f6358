//! The search for the unknown owner of a job: often after something has happened in the job, rarely
//! otherwise. Pure.

/// How long after an event the job's processes are looked at again and again: a scheduler moves a process
/// into the job first, and makes it the owner's a moment later.
const OFTEN_NS: u64 = 10_000_000_000;

/// Time between two looks at the processes of a job in which nothing happens: another process in it may
/// change its user.
const RARELY_NS: u64 = 30_000_000_000;

/// Time after which the name service is asked again for a name that it did not know.
const NAME_AGAIN_NS: u64 = 60_000_000_000;

#[derive(Debug, Default)]
pub(crate) struct OwnerSearch {
    /// Time at which the first search since the last event was.
    begun_ns: Option<u64>,
    searched_ns: u64,
    /// Time at which the name service was last asked.
    asked_ns: Option<u64>,
}

impl OwnerSearch {
    pub(crate) const fn note_event(&mut self) {
        self.begun_ns = None;
    }

    /// True if the job's processes are to be looked at now.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> bool {
        let begun_ns = *self.begun_ns.get_or_insert(now_ns);
        let is_due = now_ns.saturating_sub(begun_ns) < OFTEN_NS
            || now_ns.saturating_sub(self.searched_ns) >= RARELY_NS;
        if is_due {
            self.searched_ns = now_ns;
        }
        is_due
    }

    /// True if the name service is to be asked for the owner's name now.
    pub(crate) fn take_name_due(&mut self, now_ns: u64) -> bool {
        let is_due = self.asked_ns.is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= NAME_AGAIN_NS);
        if is_due {
            self.asked_ns = Some(now_ns);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Lists the seconds from `seconds` at which a search is due, if each second is tried.
    fn due(search: &mut OwnerSearch, seconds: std::ops::Range<u64>) -> Vec<u64> {
        seconds.filter(|second| search.take_due(second * SECOND)).collect()
    }

    #[test]
    fn an_event_makes_the_search_frequent_for_a_while() {
        let mut search = OwnerSearch::default();
        let first: Vec<u64> = (5..15).chain([44, 74]).collect();
        assert_eq!(due(&mut search, 5..100), first);
        search.note_event();
        let second: Vec<u64> = (100..110).chain([139]).collect();
        assert_eq!(due(&mut search, 100..150), second);
    }

    #[test]
    fn the_name_service_is_asked_once_a_minute() {
        let mut search = OwnerSearch::default();
        let asked: Vec<u64> = (1..130).filter(|second| search.take_name_due(second * SECOND)).collect();
        assert_eq!(asked, [1, 61, 121]);
        search.note_event();
        assert!(!search.take_name_due(130 * SECOND));
    }
}
