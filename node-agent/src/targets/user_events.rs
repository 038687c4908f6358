//! The limits of users' additions to the data of a target: marks, and values of metrics of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::Shape;
use polymeter_proto::series::Labels;

use crate::lanes::SourceId;
use crate::request::AnnotateError;
use polymeter_service::token_bucket::TokenBucket;

/// The source name of users' values.
pub(crate) const USER_SUPPLIED: &str = "pushed";

/// The most series of one target that a user supplies.
const SERIES: usize = 256;

/// The limit of marks of one target: per second in the long run, and in a burst. Each is a row of text.
const MARKS: (u32, u32) = (100, 1_000);

/// The limit of user-supplied values of one target: per second in the long run, and in a burst.
const VALUES: (u32, u32) = (1_000, 5_000);

/// The users' additions to the data of one target.
#[derive(Debug)]
pub(crate) struct UserEvents {
    marks: TokenBucket,
    values: TokenBucket,
    /// The source that counts the values; none before the first.
    pub(crate) source: Option<SourceId>,
    series: BTreeMap<(String, Labels), Arc<Shape>>,
}

impl Default for UserEvents {
    fn default() -> Self {
        let full = |(per_second, at_once)| TokenBucket::new(f64::from(per_second), f64::from(at_once));
        Self { marks: full(MARKS), values: full(VALUES), source: None, series: BTreeMap::new() }
    }
}

impl UserEvents {
    /// Takes one mark from the budget.
    ///
    /// # Errors
    /// Returns an error if there were too many recently.
    pub(crate) fn take_mark(&mut self, now_ns: u64) -> Result<(), AnnotateError> {
        let fits = self.marks.try_take(1.0, now_ns);
        if fits { Ok(()) } else { Err(AnnotateError::TooFast { per_second: MARKS.0 }) }
    }

    /// Takes one value from the budget.
    ///
    /// # Errors
    /// Returns an error if there were too many recently.
    pub(crate) fn take_value(&mut self, now_ns: u64) -> Result<(), AnnotateError> {
        let fits = self.values.try_take(1.0, now_ns);
        if fits { Ok(()) } else { Err(AnnotateError::TooFast { per_second: VALUES.0 }) }
    }

    /// Returns the shape of a series, which `assign` creates for its first value.
    ///
    /// # Errors
    /// Returns an error if the series is bounded, as those of users are, and there are too many.
    pub(crate) fn shape(
        &mut self,
        series: (String, Labels),
        is_bounded: bool,
        assign: impl FnOnce() -> Shape,
    ) -> Result<Arc<Shape>, AnnotateError> {
        if let Some(shape) = self.series.get(&series) {
            return Ok(Arc::clone(shape));
        }
        if is_bounded && self.series.len() >= SERIES {
            return Err(AnnotateError::TooManySeries(SERIES));
        }
        let shape = Arc::new(assign());
        self.series.insert(series, Arc::clone(&shape));
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::period::Period;
    use polymeter_proto::series::{Identifier, ShapeId};

    use super::*;

    #[test]
    fn marks_values_and_series_are_bounded() {
        let mut events = UserEvents::default();
        assert_eq!((0..2_000).filter(|_| events.take_mark(1).is_ok()).count(), 1_000);
        assert_eq!((0..9_000).filter(|_| events.take_value(1).is_ok()).count(), 5_000);
        assert_eq!(events.take_mark(1), Err(AnnotateError::TooFast { per_second: 100 }));
        let shape = |id| Shape {
            id: ShapeId(id),
            job: None,
            source: Identifier::try_from(USER_SUPPLIED).unwrap(),
            period: Period::SECOND,
            columns: Vec::new(),
        };
        let name = |number: u32| (format!("user.m{number}"), Labels::default());
        for number in 0..300 {
            let made = events.shape(name(number), true, || shape(number));
            assert_eq!(made.is_ok(), number < 256, "{number}");
        }
        let kept = events.shape(name(3), true, || shape(999)).unwrap();
        assert_eq!(kept.id, ShapeId(3), "a series keeps its shape");
        assert!(events.shape(name(999), false, || shape(999)).is_ok(), "a series of the program itself");
    }
}
