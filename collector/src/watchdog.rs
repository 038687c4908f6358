//! Signs of life for the service manager's watchdog, given while the receiver's loop runs. A store that does
//! not answer is no reason to restart the collector.

use polymeter_service::service_manager;
use tokio::time::{Interval, MissedTickBehavior};

use crate::Collector;

#[derive(Debug)]
pub struct Watchdog {
    interval: Option<Interval>,
}

impl Watchdog {
    /// Starts the timer in this runtime, if the service manager has a watchdog for this process.
    pub fn start() -> Self {
        let interval = service_manager::watchdog_interval().map(|interval| {
            let mut interval = tokio::time::interval(interval);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        Self { interval }
    }

    /// Waits until a sign of life is due; forever without a watchdog.
    pub async fn tick(&mut self) {
        match &mut self.interval {
            Some(interval) => drop(interval.tick().await),
            None => std::future::pending().await,
        }
    }

    /// Gives a sign of life if the receiver has worked since the last call.
    pub fn watch(&self, collector: &Collector) {
        if collector.is_receiver_alive() {
            service_manager::alive();
        }
    }
}
