//! What all roles have in common.

pub(super) const CONFIGURATION: &str = "/etc/polymeter";

pub(super) const STATE: &str = "/var/lib/polymeter";

/// Options of every role.
#[derive(Debug, clap::Args)]
pub(super) struct Common {
    /// Print the plan and change nothing.
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Do not ask.
    #[arg(long)]
    pub(super) yes: bool,
}
