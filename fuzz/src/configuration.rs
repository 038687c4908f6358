//! Configurations of both daemons: each is valid, or all its faults have a line.

use std::path::Path;

pub fn body(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(faults) = polymeter_agent::config::AgentConfig::parse(Path::new("a"), text) {
        assert!(!faults.0.is_empty());
        assert!(faults.0.iter().all(|fault| fault.to_string().starts_with("a:")));
    }
    for fault in polymeter_collector::config::check(Path::new("c"), text).0 {
        assert!(fault.place.starts_with("c:") || fault.place.starts_with("--"), "{fault}");
    }
}
