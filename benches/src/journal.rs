//! A file of results. Its head identifies the experiment and the machine; each line is appended and synced as
//! soon as it is measured, so that an interrupted experiment can be resumed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::machine;

#[derive(Debug)]
pub struct Journal {
    file: File,
}

impl Journal {
    /// Opens or creates the file of an experiment, which `description` describes, on this machine and at this
    /// revision. Returns the complete lines below the line `columns`. Fails if the file has results of
    /// another experiment, machine or revision.
    pub fn open(path: &Path, description: &str, columns: &str) -> io::Result<(Self, Vec<String>)> {
        Self::open_with(path, &head(description, columns))
            .map_err(|error| io::Error::new(error.kind(), format!("cannot open {}: {error}", path.display())))
    }

    fn open_with(path: &Path, head: &str) -> io::Result<(Self, Vec<String>)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // A file system without locks cannot tell.
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Err(io::Error::other(
                "another process adds results to it; wait for its end, or choose another directory",
            ));
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = whole(&text, head).ok_or_else(|| io::Error::other(difference(&text, head)))?;
        file.set_len(whole.len() as u64)?;
        file.seek(SeekFrom::End(0))?;
        if whole.is_empty() {
            file.write_all(head.as_bytes())?;
        }
        let lines = whole.strip_prefix(head).unwrap_or_default().lines().map(str::to_owned).collect();
        Ok((Self { file }, lines))
    }

    /// Appends a line and syncs it to the disk.
    pub fn add(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.file.sync_data()
    }
}

/// Writes what two starts of an experiment must have in common to share results.
fn head(description: &str, columns: &str) -> String {
    let mut head = format!("# machine: {}\n# revision: {}\n", machine::description(), machine::revision());
    if let Some(hash) = machine::nix_lock() {
        head.push_str(&format!("# flake.lock: {hash}\n"));
    }
    head.push_str("# experiment:\n");
    description.lines().for_each(|line| head.push_str(&format!("#| {line}\n")));
    head + columns + "\n"
}

/// Says in what the head of a file is another one.
fn difference(text: &str, head: &str) -> String {
    let (there, here) =
        text.lines().zip(head.lines()).find(|(there, here)| there != here).unwrap_or_default();
    let [there, here] = [there, here].map(|line| line.trim_start_matches(['#', '|', ' ']));
    format!("it has results with `{there}`, and this would add some with `{here}`; choose another directory")
}

/// The complete lines of `text` with the head; a kill may have truncated the last line. Empty if the head
/// itself was truncated; none if it is another one.
fn whole<'a>(text: &'a str, head: &str) -> Option<&'a str> {
    if !text.starts_with(head) {
        return head.starts_with(text).then_some("");
    }
    let end = text.rfind('\n').map_or(0, |newline| newline + 1);
    text.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_lines_are_found_again_and_a_truncated_one_is_not() {
        let (head, text) = ("# a\nx,y\n", "# a\nx,y\n1,2\n3,4\n");
        for cut in 0..=text.len() {
            let found = whole(&text[..cut], head).unwrap();
            assert!(text.starts_with(found) && found.len() <= cut, "{cut}");
            assert!(found.is_empty() || found.ends_with('\n'), "{cut}");
            assert_eq!(found.len() >= head.len(), cut >= head.len(), "{cut}");
        }
    }

    #[test]
    fn a_truncated_file_is_continued_and_that_of_another_experiment_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.csv");
        let (mut journal, lines) = Journal::open(&path, "seed = 1", "run,wall_s").unwrap();
        assert!(lines.is_empty());
        journal.add("1,1.5").unwrap();
        journal.file.write_all(b"2,0.2").unwrap();
        let error = Journal::open(&path, "seed = 1", "run,wall_s").unwrap_err().to_string();
        assert!(error.contains("another process"), "{error}");
        drop(journal);
        let (mut journal, lines) = Journal::open(&path, "seed = 1", "run,wall_s").unwrap();
        assert_eq!(lines, ["1,1.5"]);
        journal.add("2,0.25").unwrap();
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("#| seed = 1\nrun,wall_s\n1,1.5\n2,0.25\n"), "{text}");
        let error = Journal::open(&path, "seed = 2", "run,wall_s").unwrap_err().to_string();
        assert!(error.contains("runs.csv") && error.contains("another directory"), "{error}");
        assert!(
            error.contains("results with `seed = 1`, and this would add some with `seed = 2`"),
            "{error}"
        );
        let error = Journal::open(&path, "seed = 1", "run,cpu_s").unwrap_err().to_string();
        assert!(error.contains("`run,wall_s`, and this would add some with `run,cpu_s`"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
