//! The raw results: a CSV file with a header that identifies the experiment and the machine. Each run is
//! appended as soon as it ends, so that an interrupted experiment can be resumed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::design::{Design, Run, Treatment};

const COLUMNS: &str = "run,replicate,tool,period_us,metrics,wall_s";

/// Writes the header above the columns. Two starts of an experiment share results only if their headers are
/// equal.
pub(crate) fn head(experiment: &str, machine: &str, revision: &str, nix_lock: Option<&str>) -> String {
    let mut head = format!("# machine: {machine}\n# revision: {revision}\n");
    if let Some(hash) = nix_lock {
        head.push_str(&format!("# flake.lock: {hash}\n"));
    }
    head.push_str("# experiment:\n");
    experiment.lines().for_each(|line| head.push_str(&format!("#| {line}\n")));
    head.push_str(COLUMNS);
    head.push('\n');
    head
}

/// Writes the CSV line of one run, number `number` from 1.
pub(crate) fn line(design: &Design, number: usize, run: &Run, wall_s: f64) -> String {
    let (period_us, metrics) = match &run.treatment {
        Treatment::Nothing => (String::new(), String::new()),
        Treatment::Watched { period, metrics, .. } => (period.as_micros().to_string(), metrics.to_string()),
    };
    let (replicate, tool) = (run.replicate, design.tool_name(&run.treatment));
    format!("{number},{replicate},{tool},{period_us},{metrics},{wall_s:.6}\n")
}

/// Parses raw results. Returns the wall times of the runs in `text`, in seconds and in the order of the runs,
/// and the length of the complete lines, in bytes. Fails if the results belong to another experiment, machine
/// or revision, or were edited.
pub(crate) fn done(
    text: &str,
    head: &str,
    design: &Design,
    runs: &[Run],
) -> Result<(Vec<f64>, usize), String> {
    let Some(lines) = text.strip_prefix(head) else {
        // A start that was killed while it wrote the header left no results.
        return if head.starts_with(text) {
            Ok((Vec::new(), 0))
        } else {
            Err("it has results of another experiment, machine or revision: choose another directory"
                .to_owned())
        };
    };
    let mut walls = Vec::new();
    let mut whole = head.len();
    for (number, text) in (1..).zip(lines.split_inclusive('\n')) {
        // A kill may have truncated the last line.
        if !text.ends_with('\n') {
            break;
        }
        let run = runs.get(number - 1);
        let wall_s = text.trim_end().rsplit_once(',').and_then(|(_, wall)| wall.parse::<f64>().ok());
        match (run, wall_s) {
            (Some(run), Some(wall_s)) if line(design, number, run, wall_s) == text => walls.push(wall_s),
            _ => return Err(format!("the line of run {number} is not as this experiment writes it")),
        }
        whole += text.len();
    }
    Ok((walls, whole))
}

#[derive(Debug)]
pub(crate) struct Results {
    file: File,
}

impl Results {
    /// Opens or creates the file and returns the wall times that it holds, in seconds. Fails if it holds
    /// other results.
    pub(crate) fn open(
        path: &Path,
        head: &str,
        design: &Design,
        runs: &[Run],
    ) -> io::Result<(Self, Vec<f64>)> {
        let with_path = |error: String| io::Error::other(format!("{}: {error}", path.display()));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| with_path(error.to_string()))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|error| with_path(error.to_string()))?;
        let (walls, whole) = done(&text, head, design, runs).map_err(with_path)?;
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::End(0))?;
        if whole == 0 {
            file.write_all(head.as_bytes())?;
        }
        Ok((Self { file }, walls))
    }

    /// Appends a line and syncs it to the disk.
    pub(crate) fn add(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "replicates = 2\nseed = 5\nperiods = ['1ms']\nmetrics = [3]\n";

    fn experiment() -> (Design, Vec<Run>, String) {
        let design = Design::parse(TEXT).unwrap();
        let runs = design.runs();
        (design, runs, head(TEXT, "2 x CPU", "abc", Some("123")))
    }

    #[test]
    fn complete_lines_are_found_again_and_a_truncated_one_is_not() {
        let (design, runs, head) = experiment();
        let mut text = head.clone();
        let walls = [1.5, 2.25, 0.125];
        for (number, (run, wall_s)) in (1..).zip(runs.iter().zip(walls)) {
            text.push_str(&line(&design, number, run, wall_s));
        }
        assert_eq!(done(&text, &head, &design, &runs).unwrap(), (walls.to_vec(), text.len()));
        for cut in 0..text.len() {
            let (found, whole) = done(&text[..cut], &head, &design, &runs).unwrap();
            assert_eq!(found, walls[..found.len()]);
            assert!(whole <= cut && (whole == 0 || text[..whole].ends_with('\n')));
        }
    }

    #[test]
    fn a_truncated_file_is_continued() {
        let (design, runs, head) = experiment();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.csv");
        let (mut results, walls) = Results::open(&path, &head, &design, &runs).unwrap();
        assert!(walls.is_empty());
        results.add(&line(&design, 1, &runs[0], 1.0)).unwrap();
        results.add("2,1,cut o").unwrap();
        let (mut results, walls) = Results::open(&path, &head, &design, &runs).unwrap();
        assert_eq!(walls, [1.0]);
        results.add(&line(&design, 2, &runs[1], 3.0)).unwrap();
        assert_eq!(Results::open(&path, &head, &design, &runs).unwrap().1, [1.0, 3.0]);
    }

    #[test]
    fn results_of_something_else_are_not_touched() {
        let (design, runs, head) = experiment();
        assert!(done("run,wall\n1,2\n", &head, &design, &runs).unwrap_err().contains("another"));
        let other = super::head(TEXT, "2 x CPU", "abd", Some("123"));
        assert!(done(&other, &head, &design, &runs).unwrap_err().contains("another"));
        let wrong = format!("{head}1,9,polymeter,1000,3,1.000000\n");
        assert!(done(&wrong, &head, &design, &runs).unwrap_err().contains("run 1"));
    }
}
