//! Roles of a machine.

use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;

/// A role of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    /// An agent samples here.
    Node,
    /// A collector stores here.
    Collector,
    /// Users work here, and ask the collector.
    Login,
}

impl Role {
    /// Takes those that the command line names, else those with configuration files.
    pub(super) fn of_machine(named: &[Self], agent: &Path, collector: &Path) -> Vec<Self> {
        let mut roles = named.to_vec();
        if roles.is_empty() {
            roles.extend(agent.exists().then_some(Self::Node));
            roles.extend(collector.exists().then_some(Self::Collector));
        }
        if roles.is_empty() {
            roles.push(Self::Login);
        }
        roles.sort_unstable();
        roles.dedup();
        roles
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Collector => "collector",
            Self::Login => "login node",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_follow_from_the_configuration_files() {
        let directory = tempfile::tempdir().unwrap();
        let (agent, collector) =
            (directory.path().join("agent.toml"), directory.path().join("collector.toml"));
        let roles = |named: &[Role]| Role::of_machine(named, &agent, &collector);
        assert_eq!(roles(&[]), [Role::Login]);
        std::fs::write(&collector, "").unwrap();
        assert_eq!(roles(&[]), [Role::Collector]);
        std::fs::write(&agent, "").unwrap();
        assert_eq!(roles(&[]), [Role::Node, Role::Collector]);
        assert_eq!(roles(&[Role::Login, Role::Node, Role::Login]), [Role::Node, Role::Login]);
    }
}
