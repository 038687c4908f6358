//! Summary of an array as text. Pure.

use polymeter_analysis::array::{ArrayReport, ArrayTask};
use polymeter_proto::units;
use polymeter_service::time_text::to_the_second;

use super::summary;
use crate::output::layout::wrapped_lines;
use crate::output::printable::printable;
use crate::output::table::{figure, head, table_within};

const TASKS: usize = 1000;

/// Figures of an array, and a table of its tasks.
pub(crate) fn array_text(array: &ArrayReport, limit: Option<usize>) -> String {
    let states: Vec<String> = array.states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let mut text = format!(
        "{} stands for {}: {}\n",
        printable(&array.array),
        units::counted(array.tasks.len() as u64, "job"),
        printable(&states.join(", "))
    );
    text = wrapped_lines(&text, limit);
    if let Some(elapsed) = array.elapsed_s {
        let [min, mean, max] = [elapsed.min, elapsed.mean, elapsed.max].map(units::elapsed);
        text.push_str(&format!("elapsed    {min} to {max}, mean {mean}\n"));
    }
    let share = array
        .cpu_share
        .map_or_else(String::new, |share| format!(", {} of that of the cores", summary::percent(share)));
    text.push_str(&format!("CPU time   {}{share}\n", summary::figure(array.cpu_s, units::elapsed)));
    if let Some(bytes) = array.peak_memory_bytes {
        text.push_str(&format!("memory     at most {}\n", units::value("bytes", bytes)));
    }
    if array.not_read > 0 {
        text.push_str(&format!(
            "CPU time and memory are those of all tasks but the last {}\n",
            array.not_read
        ));
    }
    let mut rows =
        vec![head(["JOB", "ID", "STATE", "STARTED (UTC)", "ELAPSED", "CPU TIME", "MEMORY", "RUNS"])];
    rows.extend(array.tasks.iter().take(TASKS).map(row));
    text.push('\n');
    text.push_str(&table_within(&rows, limit));
    let more = array.tasks.len().saturating_sub(TASKS);
    if more > 0 {
        text.push_str(&format!("and {more} more: --json lists them\n"));
    }
    if let Some(task) = array.tasks.first() {
        text.push_str(&format!("\n`polymeter report {}` reports one of them\n", printable(&task.job)));
    }
    text
}

fn row(task: &ArrayTask) -> Vec<String> {
    vec![
        task.job.clone(),
        task.job_id.clone(),
        task.state.clone(),
        to_the_second(task.started_us),
        units::elapsed(task.elapsed_s),
        figure(task.cpu_s, units::elapsed),
        summary::bytes(task.peak_memory_bytes),
        task.runs.to_string(),
    ]
}
