//! Live view: its state, the effects of keys, and its appearance. Pure.

mod draw;
mod input;
mod keys;
mod period_steps;
mod recent_series;
mod state;

pub(super) use draw::ScreenLine;
pub(super) use state::{SUMMARY, View, ViewAction};

#[cfg(test)]
mod tests;
