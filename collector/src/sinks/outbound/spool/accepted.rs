//! Requests that a receiver accepted lately, and forgets if it is killed: pure.

use std::collections::VecDeque;
use std::time::Duration;

use super::position::Position;

/// Repetitions while no request becomes older than the window, so that a connection that is lost again and
/// again does not keep the newer ones waiting forever.
const REPETITIONS_MAX: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AcceptedRequest {
    pub(super) start: Position,
    pub(super) samples: u32,
    /// Time since the start of the clock.
    pub(super) at: Duration,
}

/// Sorted by position. All were accepted within a window of time before the last one.
#[derive(Debug, Default)]
pub(super) struct AcceptedRequests {
    window: Duration,
    requests: VecDeque<AcceptedRequest>,
    repetitions: u32,
}

impl AcceptedRequests {
    /// Stays empty without a window.
    pub(super) fn new(window: Duration) -> Self {
        Self { window, ..Self::default() }
    }

    /// Removes the requests that were accepted before the window: the receiver has answered since then, and
    /// has written them to its disk.
    pub(super) fn push(&mut self, request: AcceptedRequest) {
        if self.window.is_zero() {
            return;
        }
        while self.requests.front().is_some_and(|first| request.at.saturating_sub(first.at) > self.window) {
            self.requests.pop_front();
            self.repetitions = 0;
        }
        self.requests.push_back(request);
    }

    pub(super) fn first(&self) -> Option<Position> {
        self.requests.front().map(|request| request.start)
    }

    /// Forgets the requests of the files up to `number`, which were dropped.
    pub(super) fn remove_file(&mut self, number: u64) {
        self.requests.retain(|request| request.start.file > number);
    }

    /// Removes all, and returns them to be sent again; none if that happened too often.
    pub(super) fn take(&mut self) -> VecDeque<AcceptedRequest> {
        let requests = std::mem::take(&mut self.requests);
        if requests.is_empty() {
            return requests;
        }
        self.repetitions += 1;
        if self.repetitions > REPETITIONS_MAX {
            self.repetitions = 0;
            return VecDeque::new();
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(at_s: u64) -> AcceptedRequest {
        AcceptedRequest {
            start: Position { file: at_s / 10, offset: at_s },
            samples: 1,
            at: Duration::from_secs(at_s),
        }
    }

    fn list(times_s: impl IntoIterator<Item = u64>) -> AcceptedRequests {
        let mut list = AcceptedRequests::new(Duration::from_secs(10));
        times_s.into_iter().for_each(|at_s| list.push(request(at_s)));
        list
    }

    #[test]
    fn requests_are_kept_for_the_window_before_the_last_one() {
        assert_eq!(list(0..=15).first(), Some(request(5).start));
        // Nothing was accepted for a long time: the receiver may have been killed just after the last one.
        assert_eq!(list([1, 5, 100]).take(), [request(100)]);
        assert_eq!(list([1, 5]).take(), [request(1), request(5)]);
        let mut without = AcceptedRequests::new(Duration::ZERO);
        without.push(request(1));
        assert!(without.first().is_none() && without.take().is_empty());
    }

    #[test]
    fn requests_of_dropped_files_are_forgotten() {
        let mut list = list([8, 9, 10, 12]);
        list.remove_file(0);
        assert_eq!(list.take(), [request(10), request(12)]);
    }

    #[test]
    fn repetitions_end_while_nothing_becomes_older_than_the_window() {
        let mut list = list([0]);
        let mut repeat = |at_s| {
            let count = list.take().len();
            list.push(request(at_s));
            count
        };
        assert!((1..=8).all(|at_s| repeat(at_s) == 1));
        assert_eq!((repeat(9), repeat(10)), (0, 1), "the ninth one is not repeated");
        // The counting begins anew.
        list.push(request(30));
        assert_eq!(list.repetitions, 0);
    }
}
