//! Time by which rows become old: that of the database, as long as it is plausible.
//!
//! A clock that jumped ahead would let retention remove rows that are not old. Each round of the maintenance
//! compares the database's time with the latest one that was accepted, and accepts it or refuses it. Once it
//! is refused the accepted time stands still, so that nothing more becomes old, until the clock is right
//! again or an administrator confirms it.

use std::fmt;

use super::state::{now_us, states};
use crate::StoreError;
use crate::backend::Connection;
use crate::error::Context;
use crate::retention::{Level, Retention};
use crate::row::TimeUs;
use crate::value::Value;

const DAY_US: i64 = 86_400 * 1_000_000;

/// How far the clock of a store that is maintained all the time may get ahead of the elapsed time: a machine
/// without a battery for its clock sets it after its start.
const STEP_US: i64 = DAY_US;

/// Without maintenance the clock may advance by the shortest retention divided by this: at most that part of
/// the rows is removed too early. A store that keeps all rows has only tokens and requests that expire.
const PAUSE_PART: i64 = 10;

/// Days whose part counts for a store that keeps all rows.
const FOREVER_DAYS: i64 = 365;

const ACTION: &str = "compare the clock with the last time of maintenance";

/// Clock that is ahead of what the elapsed time explains, in microseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockJump {
    pub accepted_us: i64,
    pub now_us: i64,
}

impl ClockJump {
    pub const fn ahead_us(&self) -> i64 {
        self.now_us.saturating_sub(self.accepted_us)
    }
}

/// States the jump without a remedy.
impl fmt::Display for ClockJump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ahead = match self.ahead_us() / DAY_US {
            0 | 1 => "a day".to_owned(),
            days => format!("{days} days"),
        };
        write!(
            f,
            "the clock of the database is {ahead} after the last maintenance of the store: it jumped ahead, or no collector ran for so long"
        )
    }
}

/// Last time that a maintenance accepted, with the reading of the monotonic clock at that moment in
/// nanoseconds; none before the first round.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch(Option<(i64, u64)>);

impl ClockWatch {
    /// Returns the latest plausible time, when the store has accepted `accepted_us` before.
    fn limit_us(&self, accepted_us: i64, is_refused: bool, retention: &Retention, monotonic_ns: u64) -> i64 {
        if let Some((own_us, at_ns)) = self.0 {
            let elapsed_us = i64::try_from(monotonic_ns.saturating_sub(at_ns) / 1000).unwrap_or(i64::MAX);
            // Another program may have accepted or confirmed a later time.
            return own_us.saturating_add(elapsed_us).max(accepted_us).saturating_add(STEP_US);
        }
        // A restart does not make a refused time plausible.
        let shortest = Level::ALL.into_iter().filter_map(|level| retention.of(level).days()).min();
        let days = shortest.map_or(FOREVER_DAYS, i64::from);
        let pause_us = if is_refused { 0 } else { days.saturating_mul(DAY_US) / PAUSE_PART };
        accepted_us.saturating_add(pause_us.max(STEP_US))
    }

    /// Accepts the time of the database, or refuses it and returns the jump. `monotonic_ns` goes on while the
    /// machine is suspended.
    pub(crate) fn check(
        &mut self,
        connection: &mut dyn Connection,
        monotonic_ns: u64,
    ) -> Result<Option<ClockJump>, StoreError> {
        let (now_us, retention) = (now_us(connection)?, Retention::of_states(&states(connection)?));
        let (accepted_us, refused_us) = state(connection)?;
        if now_us > self.limit_us(accepted_us, refused_us.is_some(), &retention, monotonic_ns) {
            if refused_us.is_none() {
                write(connection, "UPDATE clock_check SET refused = $1", now_us)?;
            }
            return Ok(Some(ClockJump { accepted_us, now_us }));
        }
        if now_us > accepted_us || refused_us.is_some() {
            let accept = "UPDATE clock_check SET accepted = greatest(accepted, $1), refused = NULL";
            write(connection, accept, now_us)?;
        }
        self.0 = Some((now_us.max(accepted_us), monotonic_ns));
        Ok(None)
    }
}

/// Returns the accepted time, and the time that is refused, if any.
fn state(connection: &mut dyn Connection) -> Result<(i64, Option<i64>), StoreError> {
    let select = "SELECT accepted, refused FROM clock_check";
    let (TimeUs(accepted_us), TimeUs(refused_us)) = connection.select_one(select, &[]).context(ACTION)?;
    Ok((accepted_us, refused_us))
}

/// Returns the jump that maintenance has refused, unless the clock has become right since.
pub(crate) fn refused(connection: &mut dyn Connection) -> Result<Option<ClockJump>, StoreError> {
    let (accepted_us, refused_us) = state(connection)?;
    let now_us = now_us(connection)?;
    let is_ahead = now_us > accepted_us.saturating_add(STEP_US);
    Ok(refused_us.filter(|_| is_ahead).map(|_| ClockJump { accepted_us, now_us }))
}

/// Returns the time by which rows become old.
pub(crate) fn time_us(connection: &mut dyn Connection) -> Result<i64, StoreError> {
    Ok(state(connection)?.0.min(now_us(connection)?))
}

/// Accepts the time of the database, whatever it is. Returns the time that was accepted before.
pub(crate) fn confirm(connection: &mut dyn Connection) -> Result<ClockJump, StoreError> {
    let (accepted_us, _) = state(connection)?;
    let now_us = now_us(connection)?;
    write(connection, "UPDATE clock_check SET accepted = $1, refused = NULL", now_us)?;
    Ok(ClockJump { accepted_us, now_us })
}

fn write(connection: &mut dyn Connection, update: &str, time_us: i64) -> Result<(), StoreError> {
    connection.begin().context(ACTION)?;
    connection.execute(update, &[Value::Time(time_us)]).context(ACTION)?;
    connection.commit().context(ACTION)
}

#[cfg(test)]
mod tests {
    use polymeter_proto::units;

    use super::*;
    use crate::retention::Keep;

    const NOW_US: i64 = 1_700_000_000_000_000;
    const HOUR_NS: u64 = 3600 * 1_000_000_000;

    fn of_samples(samples: Keep) -> Retention {
        Retention { samples, ten_seconds: samples, minute: samples, hour: Keep::Forever }
    }

    /// Returns the days from the last accepted time to the latest plausible one.
    fn days(watch: &ClockWatch, is_refused: bool, keep: Keep, monotonic_ns: u64) -> f64 {
        let limit_us = watch.limit_us(NOW_US, is_refused, &of_samples(keep), monotonic_ns);
        units::to_f64((limit_us - NOW_US).unsigned_abs()) / units::to_f64(DAY_US.unsigned_abs())
    }

    #[test]
    fn a_pause_is_plausible_up_to_a_tenth_of_the_retention() {
        let first = ClockWatch::default();
        for (keep, expected) in
            [(Keep::Days(90), 9.0), (Keep::Days(3), 1.0), (Keep::Days(1), 1.0), (Keep::Forever, 36.5)]
        {
            assert_eq!(days(&first, false, keep, 0), expected, "{keep}");
            assert_eq!(days(&first, true, keep, 0), 1.0, "{keep}: a restart does not confirm a jump");
        }
    }

    #[test]
    fn a_jump_is_stated_in_days() {
        for (days, expected) in [(1, "is a day after"), (100, "is 100 days after")] {
            let jump = ClockJump { accepted_us: NOW_US, now_us: NOW_US + days * DAY_US + 5 };
            assert!(jump.to_string().contains(expected), "{jump}");
        }
    }

    #[test]
    fn a_running_maintenance_knows_the_elapsed_time() {
        let watch = ClockWatch(Some((NOW_US, 7 * HOUR_NS)));
        assert_eq!(days(&watch, false, Keep::Days(900), 7 * HOUR_NS), 1.0);
        // The database did not answer for three days, or the machine was suspended.
        assert_eq!(days(&watch, false, Keep::Days(900), 79 * HOUR_NS), 4.0);
        // Another program accepted a later time.
        let behind = ClockWatch(Some((NOW_US - 50 * DAY_US, 0)));
        assert_eq!(days(&behind, false, Keep::Days(900), HOUR_NS), 1.0);
    }
}
