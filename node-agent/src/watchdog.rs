//! Signs of life for the service manager's watchdog, given while the supervisor answers.

use polymeter_service::service_manager;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::{Interval, MissedTickBehavior};

use crate::agent::Agent;
use crate::request::View;

#[derive(Debug)]
pub struct Watchdog {
    /// None without a watchdog.
    interval: Option<Interval>,
    request: Option<oneshot::Receiver<View>>,
}

impl Watchdog {
    /// Starts the timer in `runtime`, if the service manager has a watchdog for this process.
    pub fn start(runtime: &Runtime) -> Self {
        let _guard = runtime.enter();
        let interval = service_manager::watchdog_interval().map(|interval| {
            let mut interval = tokio::time::interval(interval);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        Self { interval, request: None }
    }

    /// Waits until a sign of life is due; forever without a watchdog.
    pub async fn tick(&mut self) {
        match &mut self.interval {
            Some(interval) => drop(interval.tick().await),
            None => std::future::pending().await,
        }
    }

    /// Gives a sign of life if the supervisor has answered since the last call, and asks it again.
    pub fn watch(&mut self, agent: &Agent) {
        match self.request.as_mut().map(oneshot::Receiver::try_recv) {
            Some(Ok(_)) => service_manager::alive(),
            Some(Err(oneshot::error::TryRecvError::Empty)) => return,
            // It was not asked, or it is ending.
            Some(Err(oneshot::error::TryRecvError::Closed)) | None => {}
        }
        self.request = agent.probe();
    }
}
