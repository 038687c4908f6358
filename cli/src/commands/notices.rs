//! `polymeter notices`: lists the notices that were sent about jobs, and records that a user wants none.

use polymeter_client::connection::collector::Collector;
use polymeter_proto::control::{NoticeChoice, NoticeChoices, NoticesRequest};
use polymeter_service::time_text::rfc3339;
use polymeter_store::reader::NoticeRow;
use serde::Serialize;

use crate::client::read_source::{ReadSource, Visible};
use crate::failure::Failure;
use crate::output::table::{figure, head, table_within};
use crate::output::terminal;
use crate::store_failure::cannot_read;

const ALL: &str = "all";

#[derive(Debug, clap::Args)]
pub(crate) struct NoticesArguments {
    /// Send me no notices of this rule, or of any.
    #[arg(long, value_name = "RULE", num_args = 0..=1, default_missing_value = ALL)]
    off: Option<String>,

    /// Send me notices of this rule again, or of all.
    #[arg(long, value_name = "RULE", num_args = 0..=1, default_missing_value = ALL, conflicts_with = "off")]
    on: Option<String>,

    /// List who wants no notices, of which rules: your own choices, or those of all users for administrators.
    #[arg(long, conflicts_with_all = ["off", "on"])]
    choices: bool,

    /// List at most this number of notices, the newest.
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    #[command(flatten)]
    source: ReadSource,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Notice<'a> {
    time: String,
    rule: &'a str,
    job_id: &'a str,
    key: i64,
    uid: Option<i64>,
    recipient: &'a str,
    subject: &'a str,
    text: &'a str,
    /// What became of it; none while it is sent, or if its collector ended meanwhile.
    result: Option<&'a str>,
}

pub(crate) fn execute(arguments: &NoticesArguments) -> Result<(), Failure> {
    if let Some(rule) = arguments.off.as_ref().or(arguments.on.as_ref()) {
        return record(arguments, rule);
    }
    if arguments.choices {
        return list_choices(arguments);
    }
    let mut source = arguments.source.open()?;
    let rows = source.reader.notices(None, arguments.limit);
    let rows = rows.map_err(cannot_read)?;
    if arguments.json {
        return terminal::print_json(&rows.iter().map(notice).collect::<Vec<_>>());
    }
    terminal::print(&text(&rows, source.visible, terminal::width_limit(&std::io::stdout())))
}

fn collector(arguments: &NoticesArguments, action: &str) -> Result<Collector, Failure> {
    let (collector, munge_socket) = arguments.source.collector_options();
    Collector::find(collector, munge_socket)?.ok_or_else(|| {
        Failure::NotRunning(format!("cannot {action}: no collector is configured; name it with --collector"))
    })
}

fn record(arguments: &NoticesArguments, rule: &str) -> Result<(), Failure> {
    let rule = Some(rule.to_owned()).filter(|rule| rule != ALL);
    let is_off = arguments.off.is_some();
    let request = NoticesRequest { rule, off: Some(is_off) };
    collector(arguments, "record the choice")?.send(&request.to_line())?;
    terminal::print(&recorded(request.rule.as_deref(), is_off))
}

fn list_choices(arguments: &NoticesArguments) -> Result<(), Failure> {
    let choices = collector(arguments, "list the choices")?.notice_choices()?;
    if arguments.json {
        return terminal::print_json(&choices.choices);
    }
    terminal::print(&choices_text(&choices, terminal::width_limit(&std::io::stdout())))
}

fn choices_text(choices: &NoticeChoices, limit: Option<usize>) -> String {
    if choices.choices.is_empty() {
        let of_whom = if choices.all_users { "all users get" } else { "you get" };
        return format!("{of_whom} the notices of all rules\n");
    }
    let mut cells = vec![head(["USER", "NO NOTICES OF"])];
    for NoticeChoice { uid, user, rule } in &choices.choices {
        let user = user.clone().unwrap_or_else(|| format!("uid {uid}"));
        cells.push(vec![user, rule.clone().unwrap_or_else(|| "all rules".to_owned())]);
    }
    table_within(&cells, limit)
}

fn recorded(rule: Option<&str>, is_off: bool) -> String {
    match (rule, is_off) {
        (None, true) => "you get no more notices; to get them again: polymeter notices --on\n".to_owned(),
        (None, false) => "you get the notices of all rules\n".to_owned(),
        (Some(rule), true) => {
            format!("you get no more notices of {rule}; to get them again: polymeter notices --on {rule}\n")
        }
        (Some(rule), false) => format!("you get notices of {rule}, unless you want none at all (--off)\n"),
    }
}

fn notice(row: &NoticeRow) -> Notice<'_> {
    Notice {
        time: rfc3339(row.time_ns / 1000),
        rule: &row.rule,
        job_id: &row.job_id,
        key: row.job_key,
        uid: row.uid,
        recipient: &row.recipient,
        subject: &row.subject,
        text: &row.text,
        result: row.result.as_deref(),
    }
}

fn text(rows: &[NoticeRow], visible: Visible, limit: Option<usize>) -> String {
    if rows.is_empty() {
        let of_user = if visible == Visible::Own { " about your jobs" } else { "" };
        return format!("no notices{of_user}\n");
    }
    let mut cells = vec![head(["TIME (UTC)", "JOB", "TO", "RULE", "RESULT"])];
    for row in rows {
        let time = rfc3339(row.time_ns / 1000);
        cells.push(vec![
            time.get(..16).unwrap_or(&time).replace('T', " "),
            row.job_id.clone(),
            row.recipient.clone(),
            row.rule.clone(),
            figure(row.result.as_deref(), str::to_owned),
        ]);
    }
    table_within(&cells, limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot;

    fn row(seconds: i64, rule: &str, result: Option<&str>) -> NoticeRow {
        NoticeRow {
            time_ns: (1_795_357_800 + seconds) * 1_000_000_000,
            rule: rule.to_owned(),
            job_id: "4010".to_owned(),
            recipient: "zoe@example.org".to_owned(),
            result: result.map(str::to_owned),
            ..NoticeRow::default()
        }
    }

    #[test]
    fn notices_are_laid_out_as_recorded() {
        let rows = [
            row(3600, "idle-gpu", Some("mail: sent; webhook: the server answered with the status 500")),
            row(0, "memory-near-limit", None),
        ];
        assert!(recorded(Some("idle-gpu"), true).contains("no more notices of idle-gpu;"));
        assert!(recorded(None, true).contains("no more notices;"));
        assert!(recorded(None, false).contains("all rules"));
        snapshot::check("notices", &text(&rows, Visible::All, Some(80)));
        assert_eq!(text(&[], Visible::Own, None), "no notices about your jobs\n");
    }

    #[test]
    fn choices_are_listed_by_user() {
        let choice = |uid, user: Option<&str>, rule: Option<&str>| NoticeChoice {
            uid,
            user: user.map(str::to_owned),
            rule: rule.map(str::to_owned),
        };
        let choices = vec![choice(1000, Some("ada"), Some("idle-gpu")), choice(1001, None, None)];
        let text = choices_text(&NoticeChoices { all_users: true, choices }, Some(80));
        assert_eq!(text, "USER      NO NOTICES OF\nada       idle-gpu\nuid 1001  all rules\n");
        assert_eq!(choices_text(&NoticeChoices::default(), None), "you get the notices of all rules\n");
    }
}
