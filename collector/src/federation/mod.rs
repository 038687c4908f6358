//! Page of the newest values of all nodes, which Prometheus and its relatives read at `/federate`.
//!
//! A sink keeps one value for each series; a thread of its own formats those that a request selects.
//! Values, requests, connections and answers are bounded.

mod answer;
mod newest;
mod page;
mod selector;

use std::path::PathBuf;

pub(crate) use self::answer::FederatePage;
pub(crate) use self::newest::{KEPT, NewestValues, Table};
pub use crate::page_server::PageAddress;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FederationConfig {
    /// A TCP address is one of this machine.
    pub listen: PageAddress,
    /// Readers present the token in it; always there for TCP.
    pub token_file: Option<PathBuf>,
}

/// Tells whether a query selects series.
#[doc(hidden)]
pub fn is_selection(query: &[u8]) -> bool {
    selector::of_query(query).is_ok()
}

/// Lines of samples that a query selects, or the refusal.
#[cfg(test)]
pub(crate) fn samples(values: &NewestValues, query: &str, series_max: usize) -> Result<Vec<String>, String> {
    let selectors = selector::of_query(query.as_bytes()).unwrap();
    let format = polymeter_proto::exposition::Format::Text;
    let text = page::text(values, &selectors, format, series_max).map_err(|error| error.to_string())?;
    Ok(text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect())
}
