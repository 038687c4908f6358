//! `polymeter trigger`: adds, lists and removes the triggers of a job.

use std::collections::BTreeMap;

use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter;
use polymeter_proto::control::{
    Answer, FiringLine, JobAnswer, Request, TriggerAddRequest, TriggerAddedAnswer, TriggerLine,
    TriggerRemoveRequest, TriggersAnswer, TriggersRequest,
};
use polymeter_proto::trigger::{Rule, RuleFault, RuleFields};
use polymeter_service::time_text;

use crate::completion::periods;
use crate::connection::agent::unexpected;
use crate::connection::target::{ControlTarget, TargetAnswer};
use crate::control_view::nodes;
use crate::failure::Failure;
use crate::job_choice::JobChoice;
use crate::local::Local;
use crate::output::layout::wrapped_lines;
use crate::output::printable::printable_name;
use crate::output::table::{head, table_within};
use crate::output::terminal;

/// Code of the refusal of a collector whose agents do not track a job, or not for the user.
const UNKNOWN_JOB: &str = "unknown_job";

#[derive(Debug, clap::Args)]
pub struct TriggerArguments {
    #[command(subcommand)]
    command: TriggerCommand,
}

#[derive(Debug, Subcommand)]
enum TriggerCommand {
    /// Add a trigger to a job on all of its nodes, or replace the one of that name.
    Add(Box<AddArguments>),
    /// List the triggers of a job, and what has fired; of a job that has ended, what fired.
    List(ListArguments),
    /// Remove a trigger that was added to a job.
    Remove(RemoveArguments),
}

#[derive(Debug, clap::Args)]
struct AddArguments {
    /// The name of the trigger.
    #[arg(value_name = "NAME")]
    name: String,

    /// The condition: `oom`, `xid` (an error of a GPU), `exit_status`, `signal`, `time_limit`, or such as
    /// 'memory.current > 100GiB for 5s' or 'rate(cpu.usage) < 1000 for 30s'; several are joined with `and`.
    #[arg(long, value_name = "CONDITION")]
    when: String,

    /// Keep the ring's samples from this time before the instant, on all nodes of the job. Default without
    /// another action: 30s.
    #[arg(long, value_name = "TIME", add = ArgValueCompleter::new(periods::duration))]
    keep: Option<String>,

    /// Keep them until this time after the instant. Default: 5s.
    #[arg(long, value_name = "TIME", add = ArgValueCompleter::new(periods::duration))]
    after: Option<String>,

    /// Sample metrics at another period for a while, by a lease; may be repeated.
    #[arg(long, value_name = "SELECTOR=PERIOD", value_parser = raised)]
    raise: Vec<(String, String)>,

    /// The duration of that lease. Default: 1min.
    #[arg(long, value_name = "TIME", add = ArgValueCompleter::new(periods::duration))]
    raise_for: Option<String>,

    /// Sample call stacks at this period for as long.
    #[arg(long, value_name = "PERIOD", add = ArgValueCompleter::new(periods::duration))]
    stacks: Option<String>,

    /// Record a mark with the name of the trigger.
    #[arg(long)]
    mark: bool,

    /// Tell the owner of the job, as the site's notices do, and write a line to the logs of the agent and of
    /// the collector.
    #[arg(long)]
    notice: bool,

    /// The time without another firing. Default: 1min.
    #[arg(long, value_name = "TIME", add = ArgValueCompleter::new(periods::duration))]
    hold_off: Option<String>,

    /// The firings on each node in a day, at most. Default: 5.
    #[arg(long, value_name = "NUMBER")]
    firings: Option<u32>,

    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

#[derive(Debug, clap::Args)]
struct ListArguments {
    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

#[derive(Debug, clap::Args)]
struct RemoveArguments {
    /// The name of the trigger.
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

fn raised(text: &str) -> Result<(String, String), &'static str> {
    let (selector, period) = text.split_once('=').ok_or("expected such as 'cpu.*=10ms'")?;
    Ok((selector.to_owned(), period.to_owned()))
}

pub(crate) fn execute(arguments: &TriggerArguments, local: Option<&Local>) -> Result<(), Failure> {
    match &arguments.command {
        TriggerCommand::Add(arguments) => add(arguments),
        TriggerCommand::List(ListArguments { job, target }) => {
            let id = job.id(&target.socket())?;
            let verb = Request::Triggers(TriggersRequest { job: id.clone() });
            let answer = match (target.ask(&verb, job.is_job()), id, local) {
                (Err(Failure::Refused(refusal)), Some(id), Some(local)) if refusal.code == UNKNOWN_JOB => {
                    of_ended(target, &id, local)?.ok_or(Failure::Refused(refusal))?
                }
                (answer, _, _) => answer?,
            };
            list(answer, target.json)
        }
        TriggerCommand::Remove(RemoveArguments { name, job, target }) => {
            let id = job.id(&target.socket())?;
            let verb = Request::TriggerRemove(TriggerRemoveRequest { job: id, name: name.clone() });
            match target.ask(&verb, job.is_job())? {
                TargetAnswer::Nodes(answer) => nodes::print(&answer, target.json),
                TargetAnswer::Agent(answer @ Answer::Done {}) if target.json => terminal::print_json(&answer),
                TargetAnswer::Agent(Answer::Done {}) => terminal::print("removed\n"),
                TargetAnswer::Agent(answer) => Err(unexpected(answer)),
            }
        }
    }
}

/// What fired of a job that no agent tracks; none if the user sees no such job.
fn of_ended(target: &ControlTarget, id: &str, local: &Local) -> Result<Option<TargetAnswer>, Failure> {
    let Some(collector) = target.collector()? else { return Ok(None) };
    Ok((local.stored_firings)(&collector, id)?.map(TargetAnswer::Nodes))
}

fn add(arguments: &AddArguments) -> Result<(), Failure> {
    let AddArguments { job, target, .. } = arguments;
    let rule = RuleFields {
        name: arguments.name.clone(),
        when: arguments.when.clone(),
        keep: arguments.keep.clone(),
        after: arguments.after.clone(),
        raise: arguments.raise.iter().cloned().collect(),
        raise_for: arguments.raise_for.clone(),
        stacks: arguments.stacks.clone(),
        mark: arguments.mark,
        notice: arguments.notice,
        hold_off: arguments.hold_off.clone(),
        firings: arguments.firings,
    };
    if let Err(faults) = Rule::parse(&rule) {
        let faults: Vec<String> = faults.iter().map(RuleFault::to_string).collect();
        return Err(Failure::Usage(faults.join("\npolymeter: ")));
    }
    let verb = Request::TriggerAdd(TriggerAddRequest { job: job.id(&target.socket())?, rule });
    let answer = match target.ask(&verb, job.is_job())? {
        TargetAnswer::Nodes(answer) => return nodes::print(&answer, target.json),
        TargetAnswer::Agent(answer) => answer,
    };
    let Answer::TriggerAdded(TriggerAddedAnswer { notes }) = &answer else { return Err(unexpected(answer)) };
    if target.json {
        return terminal::print_json(&answer);
    }
    let notes = notes.iter().map(|note| format!("note: {note}\n"));
    let text = format!("added\n{}", notes.collect::<String>());
    terminal::print(&wrapped_lines(&text, terminal::width_limit(&std::io::stdout())))
}

fn list(answer: TargetAnswer, as_json: bool) -> Result<(), Failure> {
    let of_nodes = match answer {
        TargetAnswer::Nodes(answer) if as_json => return nodes::print(&answer, true),
        TargetAnswer::Nodes(answer) if !nodes::have_succeeded(&answer) => {
            return nodes::print(&answer, false);
        }
        TargetAnswer::Nodes(answer) => of_nodes(&answer),
        TargetAnswer::Agent(answer @ Answer::Triggers(_)) if as_json => {
            return terminal::print_json(&answer);
        }
        TargetAnswer::Agent(Answer::Triggers(answer)) => vec![(String::new(), answer)],
        TargetAnswer::Agent(answer) => return Err(unexpected(answer)),
    };
    terminal::print(&text(&of_nodes, terminal::width_limit(&std::io::stdout())))
}

fn of_nodes(answer: &JobAnswer) -> Vec<(String, TriggersAnswer)> {
    let nodes = answer.nodes.iter().filter_map(|node| {
        let answer = serde_json::from_value::<Answer>(node.answer.clone()?).ok()?;
        let Answer::Triggers(triggers) = answer else { return None };
        Some((node.node.clone(), triggers))
    });
    nodes.collect()
}

/// The triggers of all nodes, and the firings in the order of their times.
fn text(of_nodes: &[(String, TriggersAnswer)], limit: Option<usize>) -> String {
    let mut triggers: BTreeMap<&str, (&TriggerLine, u64)> = BTreeMap::new();
    let mut fired: Vec<(&FiringLine, &str)> = Vec::new();
    for (node, answer) in of_nodes {
        for line in &answer.triggers {
            triggers.entry(&line.name).or_insert((line, 0)).1 += line.held_back;
        }
        fired.extend(answer.fired.iter().map(|line| (line, node.as_str())));
    }
    if of_nodes.is_empty() {
        return "nothing has fired\n".to_owned();
    }
    if triggers.is_empty() && fired.is_empty() {
        return "no triggers; `polymeter trigger add` adds one\n".to_owned();
    }
    let mut rows = vec![head(["TRIGGER", "OF", "HELD BACK", "RULE"])];
    for (line, held_back) in triggers.values() {
        rows.push(vec![
            printable_name(&line.name).into_owned(),
            line.by.as_deref().map_or("the site".into(), printable_name).into_owned(),
            held_back.to_string(),
            format!("{}: {}", printable_name(&line.when), printable_name(&line.actions)),
        ]);
    }
    // An agent that tracks the job no longer has none.
    let mut text = if triggers.is_empty() { String::new() } else { table_within(&rows, limit) + "\n" };
    if fired.is_empty() {
        return text + "nothing has fired\n";
    }
    fired.sort_by_key(|(line, _)| line.at_us);
    let mut rows = vec![head(["FIRED", "TRIGGER", "NODE", "WHY, AND WHAT WAS DONE"])];
    for (line, node) in fired {
        rows.push(vec![
            time_text::to_the_second(line.at_us),
            printable_name(&line.name).into_owned(),
            printable_name(node).into_owned(),
            format!("{}; {}", printable_name(&line.why), printable_name(&line.actions)),
        ]);
    }
    text.push_str(&table_within(&rows, limit));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_triggers_once_and_firings_by_time() {
        let trigger = |by: Option<&str>, held_back| TriggerLine {
            name: "oom".to_owned(),
            when: "oom".to_owned(),
            by: by.map(str::to_owned),
            actions: "keep 30s before and 5s after".to_owned(),
            held_back,
        };
        let firing = |at_us| FiringLine {
            trigger: 1,
            name: "oom".to_owned(),
            at_us,
            why: "the kernel killed a process".to_owned(),
            actions: "keeps 35 s".to_owned(),
        };
        let of = |by, held_back, at_us| TriggersAnswer {
            triggers: vec![trigger(by, held_back)],
            fired: vec![firing(at_us)],
        };
        let nodes = [("n1".to_owned(), of(None, 1, 2_000_000)), ("n2".to_owned(), of(None, 2, 1_000_000))];
        let text = text(&nodes, None);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].starts_with("oom")
                && lines[1].contains("the site")
                && lines[1].contains("  3          oom: keep 30s"),
            "{text}"
        );
        assert!(lines[4].contains("n2") && lines[5].contains("n1"), "{text}");
        let ended = TriggersAnswer { fired: vec![firing(0)], ..TriggersAnswer::default() };
        assert!(super::text(&[("n1".to_owned(), ended)], None).starts_with("FIRED "));
        let none = [("n1".to_owned(), TriggersAnswer::default())];
        assert!(super::text(&none, None).starts_with("no triggers"));
        assert_eq!(super::text(&[], None), "nothing has fired\n");
    }
}
