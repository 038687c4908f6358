//! Service manager: systemd's notifications, through the socket that `NOTIFY_SOCKET` names. Without that
//! variable nothing is sent.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::debug;

/// Signs of life within the watchdog's timeout: a few may be late on a busy machine.
const SIGNS: u32 = 4;

/// Reports that the program serves. `systemctl status` shows the line `status`.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the configuration is loaded again, until the next [`ready`].
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => debug!(%error, "cannot notify the service manager"),
    }
}

pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Gives a sign of life to the watchdog.
pub fn alive() {
    notify(&[NotifyState::Watchdog]);
}

/// How often to call [`alive`]; none if the service manager has no watchdog for this process.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|timeout| timeout / SIGNS).filter(|interval| !interval.is_zero())
}

fn notify(states: &[NotifyState<'_>]) {
    // The service manager may be gone; the program works without it.
    if let Err(error) = sd_notify::notify(states) {
        debug!(%error, "cannot notify the service manager");
    }
}
