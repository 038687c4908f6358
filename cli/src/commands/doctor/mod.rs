//! `polymeter doctor`: examines the installation on this machine, and states a remedy for each problem. It
//! changes nothing.
//!
//! ```text
//! configuration files, running daemons -> machine -> checks -> findings -> report
//! ```

mod checks;
mod doctor_report;
mod finding;
mod machine;
mod process;
mod role;
mod store_state;
mod unit;

use std::path::PathBuf;
use std::process::ExitCode;

use polymeter_agent::config::DEFAULT_PATH as AGENT_CONFIG;
use polymeter_collector::config::DEFAULT_PATH as COLLECTOR_CONFIG;

use self::doctor_report::Report;
use self::finding::Level;
use self::machine::Machine;
use self::role::Role;
use crate::failure::Failure;
use crate::output::terminal;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "An ordinary user sees fewer checks: those that need root are listed as not checked.\n\
    Exit status: 0 no problem (there may be warnings), 1 a problem was found, 2 the examination could not run."
)]
pub(crate) struct DoctorArguments {
    /// Examine this machine in a role; repeat the option for several. Default: node if there is an
    /// agent.toml, collector if there is a collector.toml, login if there is neither.
    #[arg(long = "role", value_name = "ROLE", value_enum)]
    roles: Vec<Role>,

    /// The configuration of the agent.
    #[arg(long, value_name = "FILE", default_value = AGENT_CONFIG)]
    agent_config: PathBuf,

    /// The configuration of the collector.
    #[arg(long, value_name = "FILE", default_value = COLLECTOR_CONFIG)]
    collector_config: PathBuf,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn execute(arguments: &DoctorArguments) -> Result<ExitCode, Failure> {
    let roles = Role::of_machine(&arguments.roles, &arguments.agent_config, &arguments.collector_config);
    let machine = Machine::new(roles, &arguments.agent_config, &arguments.collector_config)
        .map_err(|error| Failure::Usage(format!("cannot examine this machine: {error}")))?;
    let report = Report::new(&machine, checks::run(&machine));
    if arguments.json {
        terminal::print_json(&report)?;
    } else {
        terminal::print(&report.text(terminal::width_limit(&std::io::stdout())))?;
    }
    Ok(if report.has(Level::Problem) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
