//! Text of `job_stats` of Lustre's servers. Source: `job_stat_show` in `lustre/obdclass/lprocfs_jobstats.c`
//! of Lustre. It resembles YAML: an item for each job, with a line for each operation: ` write_bytes: {
//! samples: 256, unit: bytes, min: 4194304, max: 4194304, sum: 1073741824, sumsq: ... }`.

use crate::sources::UnknownLines;

/// Keys of lines that count nothing.
const LEFT_OUT: [&str; 4] = ["job_stats", "snapshot_time", "start_time", "elapsed_time"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::sources) struct Job {
    /// Id as the clients send it: the text of a variable of the environment (`4711`), `cp.1000` for processes
    /// without one, or what `jobid_name` composes.
    pub(super) id: String,
    pub(super) counts: Counts,
}

pub(in crate::sources) const COUNTS: usize = 5;

/// Bytes read, reads, bytes written, writes, and other operations.
pub(in crate::sources) type Counts = [u64; COUNTS];

/// Takes one line at a time, since a text may be as long as all jobs of a cluster make it.
#[derive(Debug, Default)]
pub(in crate::sources) struct Parser {
    job: Option<Job>,
    /// Lines so far that count for no job.
    pub(in crate::sources) unknown: UnknownLines,
}

impl Parser {
    /// Takes a line. Returns the job before it, if another one begins here.
    pub(in crate::sources) fn line(&mut self, line: &[u8]) -> Option<Job> {
        let Some((key, value)) = std::str::from_utf8(line).ok().and_then(|line| line.split_once(':')) else {
            if !line.trim_ascii().is_empty() {
                self.unknown.add(line);
            }
            return None;
        };
        let key = key.trim();
        if let Some("job_id") = key.strip_prefix('-').map(str::trim) {
            let id = value.trim().trim_matches('"').to_owned();
            return self.job.replace(Job { id, counts: Counts::default() }).filter(|job| !job.id.is_empty());
        }
        if let (Some(job), Some(operation)) = (&mut self.job, operation(value)) {
            let [read_bytes, reads, write_bytes, writes, others] = &mut job.counts;
            match key {
                "read_bytes" => (*read_bytes, *reads) = (operation.bytes, operation.samples),
                "write_bytes" => (*write_bytes, *writes) = (operation.bytes, operation.samples),
                // The times of the same reads and writes.
                "read" | "write" => {}
                _ => *others = others.saturating_add(operation.samples),
            }
        } else if !LEFT_OUT.contains(&key) {
            self.unknown.add(line);
        }
        None
    }

    pub(in crate::sources) fn finish(self) -> Option<Job> {
        self.job.filter(|job| !job.id.is_empty())
    }
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    samples: u64,
    bytes: u64,
}

/// Numbers in a text such as `{ samples: 3, unit: bytes, min: 1, max: 2, sum: 5 }`; `None` if it is cut off.
fn operation(text: &str) -> Option<Operation> {
    let (text, rest) = text.trim().strip_prefix('{')?.split_once('}')?;
    // A histogram within the braces, which follows the sums, has braces of its own.
    (rest.trim().is_empty() || text.contains('{')).then_some(())?;
    let field = |name: &str| {
        let mut fields = text.split(',').filter_map(|pair| pair.split_once(':'));
        fields.find_map(|(key, value)| (key.trim() == name).then(|| value.trim()))
    };
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let bytes = if field("unit") == Some("bytes") { number("sum").unwrap_or(0) } else { 0 };
    Some(Operation { samples: number("samples")?, bytes })
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use proptest::prelude::*;

    use super::*;

    /// An OST of Lustre 2.12, with ids of the forms `procname.uid` and `SLURM_JOB_ID`.
    const OST_2_12: &str = "\
job_stats:
- job_id:          cp.1000
  snapshot_time:   1537070542
  read_bytes:      { samples:         256, unit: bytes, min: 4194304, max: 4194304, sum:      1073741824 }
  write_bytes:     { samples:           0, unit: bytes, min:       0, max:       0, sum:               0 }
  getattr:         { samples:           0, unit:  reqs }
  setattr:         { samples:           2, unit:  reqs }
  punch:           { samples:           3, unit:  reqs }
  sync:            { samples:           0, unit:  reqs }
- job_id:          542307
  snapshot_time:   1537070549
  read_bytes:      { samples:           1, unit: bytes, min:    4096, max:    4096, sum:            4096 }
  write_bytes:     { samples:          25, unit: bytes, min: 1048576, max: 1048576, sum:        26214400 }
  statfs:          { samples:           7, unit:  reqs }
";

    /// An OST of Lustre 2.15, where operations have times, and an id of several parts is quoted.
    const OST_2_15: &str = "\
job_stats:
- job_id:          \"74186:0:ma\"
  snapshot_time:   1720516680.123456789 secs.nsecs
  start_time:      1720510000.000000001 secs.nsecs
  elapsed_time:    6680.123456788 secs.nsecs
  read_bytes:      { samples:           0, unit: bytes, min:        0, max:        0, sum:                0, sumsq:                  0 }
  write_bytes:     { samples:          52, unit: bytes, min:     4096, max:   475136, sum:          5468160, sumsq:      1071040692224 }
  read:            { samples:           0, unit: usecs, min:        0, max:        0, sum:                0, sumsq:                  0 }
  write:           { samples:          52, unit: usecs, min:       12, max:    40081, sum:           692342, sumsq:        17432258604 }
  getattr:         { samples:           6, unit: usecs, min:        0, max:       19, sum:               53, sumsq:                821 }
";

    /// An MDT of Lustre 2.16 with other blanks, and histograms.
    const MDT_2_16: &str = "\
job_stats:
- job_id:          542307
  snapshot_time   : 1958181.453162577 secs.nsecs
  open:            { samples:           3, unit: usecs, min:        1, max:       19, sum:               53, sumsq:                821, hist: { 1: 1, 32: 2 } }
  close:           { samples:           3, unit: usecs, min:        0, max:        0, sum:                0, sumsq:                  0 }
  read_bytes:      { samples:           0, unit:  reqs, min:       0, max:       0, sum:               0 }
";

    fn jobs(text: &[u8]) -> Vec<(String, Counts)> {
        let mut parser = Parser::default();
        let mut jobs: Vec<Job> =
            text.split(|byte| *byte == b'\n').filter_map(|line| parser.line(line)).collect();
        jobs.extend(parser.finish());
        jobs.into_iter().map(|job| (job.id, job.counts)).collect()
    }

    #[test]
    fn parses_the_forms_of_several_versions() {
        assert_eq!(
            jobs(OST_2_12.as_bytes()),
            [
                ("cp.1000".to_owned(), [1_073_741_824, 256, 0, 0, 5]),
                ("542307".to_owned(), [4096, 1, 26_214_400, 25, 7])
            ]
        );
        assert_eq!(jobs(OST_2_15.as_bytes()), [("74186:0:ma".to_owned(), [0, 0, 5_468_160, 52, 6])]);
        assert_eq!(jobs(MDT_2_16.as_bytes()), [("542307".to_owned(), [0, 0, 0, 0, 6])]);
        assert_eq!(jobs(b"job_stats:\n"), []);
    }

    #[test]
    fn lines_that_no_rule_takes_are_counted() {
        for text in [OST_2_12, OST_2_15, MDT_2_16] {
            assert_eq!(unknown(text), UnknownLines::default());
            for line in ["  quota: 7", "a line", "  open: { unit: reqs }"] {
                let found = unknown(&format!("{text}{line}\n"));
                assert_eq!(found, UnknownLines { lines: 1, first: line.to_owned() });
            }
        }
        assert_eq!(unknown("job_stats:\n  open: { samples: 9 }\n").lines, 1, "of no job");
    }

    fn unknown(text: &str) -> UnknownLines {
        let mut parser = Parser::default();
        text.split_inclusive('\n').for_each(|line| drop(parser.line(line.as_bytes())));
        parser.unknown
    }

    #[test]
    fn lines_that_are_malformed_count_nothing() {
        let text = "- job_id: a\n  open: { samples: 3, unit: reqs\n  close: { samples: -3, unit: reqs }\n\
                    close: { unit: reqs }\n  sync: 7\n: { samples: 1, unit: reqs }\n- job_id:\n  open: { samples: 9 }\n";
        assert_eq!(jobs(text.as_bytes()), [("a".to_owned(), [0, 0, 0, 0, 1])]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..300), at in 0..400_usize) {
            black_box(jobs(&text));
            for whole in [OST_2_12, OST_2_15, MDT_2_16] {
                let whole = whole.as_bytes();
                let at = at.min(whole.len());
                black_box(jobs(&[&whole[..at], &text, &whole[at..]].concat()));
            }
        }
    }
}
