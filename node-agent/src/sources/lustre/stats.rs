//! Text of Lustre's statistics. Source: `lprocfs_stats_seq_show` in `lustre/obdclass/lprocfs_status.c` of
//! Lustre: `read_bytes 449131 samples [bytes] 1 4194304 91756123 317891238971`. A line has a name, a number
//! of samples and their unit; where the samples are added, their minimum, maximum, sum and, in newer
//! versions, sum of squares follow. Names without samples have no line.

use crate::sources::UnknownLines;

/// Lines that are left out by name: times of the statistics, and events below the calls of applications or
/// beside the data.
const LEFT_OUT: [&str; 16] = [
    "snapshot_time",
    "start_time",
    "elapsed_time",
    "dirty_pages_hits",
    "dirty_pages_misses",
    "osc_read",
    "osc_write",
    "brw_read",
    "brw_write",
    "lockless_truncate",
    "opencount",
    "openclosetm",
    "get_info",
    "set_info",
    "quotactl",
    "llog_init",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) name: &'a [u8],
    pub(super) samples: u64,
    /// Unit without its brackets: `bytes`, `usec` (`usecs` in some versions), `regs`, `reqs`, `pages`.
    unit: &'a [u8],
    /// Sum of the samples, where they are added.
    sum: Option<u64>,
}

impl Line<'_> {
    pub(super) fn bytes(&self) -> Option<u64> {
        self.sum.filter(|_| self.unit == b"bytes")
    }

    /// Sum of the samples in nanoseconds, if they are times.
    pub(super) fn time_ns(&self) -> Option<u64> {
        self.sum.filter(|_| [&b"usec"[..], b"usecs"].contains(&self.unit))?.checked_mul(1_000)
    }
}

pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = Line<'_>> {
    text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")).filter_map(line)
}

/// Complete lines that no rule takes. `is_taken` tells whether the lines of a name are.
pub(super) fn unknown(text: &[u8], is_taken: impl Fn(&[u8]) -> bool) -> UnknownLines {
    let mut unknown = UnknownLines::default();
    for text in text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let is_left_out = words.next().is_none_or(|name| LEFT_OUT.iter().any(|out| out.as_bytes() == name));
        if !is_left_out && !line(text).is_some_and(|line| is_taken(line.name)) {
            unknown.add(text);
        }
    }
    unknown
}

fn line(text: &[u8]) -> Option<Line<'_>> {
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (name, samples) = (words.next()?, number(words.next()?)?);
    // `snapshot_time 1689697369.331040915 secs.nsecs` is no line of samples.
    (words.next()? == b"samples").then_some(())?;
    let unit = words.next()?.strip_prefix(b"[")?.strip_suffix(b"]")?;
    // Minimum and maximum come first.
    let sum = words.nth(2).and_then(number);
    Some(Line { name, samples, unit, sum })
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

/// In any text, a line that is cut off changes nothing, and a sum has one unit.
pub(in crate::sources) fn check(data: &[u8]) {
    let end = data.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let whole = data.get(..end).unwrap_or_default();
    assert!(lines(data).eq(lines(whole)));
    for line in lines(data) {
        assert!(!line.name.is_empty());
        assert!(line.bytes().is_none() || line.time_ns().is_none(), "of one unit");
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use proptest::prelude::*;

    use super::*;

    /// Lustre 2.15: all operations have times.
    const NEW: &[u8] = b"\
snapshot_time             1700000369.331040915 secs.nsecs
start_time                1699990000.000000000 secs.nsecs
elapsed_time              10369.331040915 secs.nsecs
read_bytes                449131 samples [bytes] 1 4194304 91756123 31789123897
write_bytes               12 samples [bytes] 512 4096 24576 50331648
read                      449131 samples [usec] 0 120034 5512034 998877
open                      1381 samples [usec] 1 7252 102707 8835364
inode_permission          2518 samples [usec] 0 14235 178199 11024
opencount                 1381 samples [reqs] 1 2 2071 3453
";

    /// Lustre 2.12: operations are only counted, and there are no sums of squares of bytes.
    const OLD: &[u8] = b"\
snapshot_time             1512000000.123456789 secs.nsecs
read_bytes                17 samples [bytes] 4096 1048576 9437184
ioctl                     3 samples [regs]
open                      25 samples [regs]
fsync                     2 samples [usecs] 10 30 40
";

    fn values(text: &[u8]) -> Vec<(&str, u64, Option<u64>, Option<u64>)> {
        lines(Box::leak(text.to_vec().into_boxed_slice()))
            .map(|line| (std::str::from_utf8(line.name).unwrap(), line.samples, line.bytes(), line.time_ns()))
            .collect()
    }

    #[test]
    fn parses_the_forms_of_several_versions() {
        assert_eq!(
            values(NEW),
            [
                ("read_bytes", 449_131, Some(91_756_123), None),
                ("write_bytes", 12, Some(24_576), None),
                ("read", 449_131, None, Some(5_512_034_000)),
                ("open", 1381, None, Some(102_707_000)),
                ("inode_permission", 2518, None, Some(178_199_000)),
                ("opencount", 1381, None, None),
            ]
        );
        assert_eq!(
            values(OLD),
            [
                ("read_bytes", 17, Some(9_437_184), None),
                ("ioctl", 3, None, None),
                ("open", 25, None, None),
                ("fsync", 2, None, Some(40_000)),
            ]
        );
    }

    #[test]
    fn lines_that_no_rule_takes_are_counted() {
        let of = |text: &[u8]| unknown(text, |name| !name.starts_with(b"new_"));
        assert_eq!(of(NEW), UnknownLines::default());
        assert_eq!(of(OLD), UnknownLines::default());
        for line in
            ["new_call 3 samples [reqs]", "open -1 samples [usec] 1 2 3", "open 3", "close 1 pages [x]"]
        {
            let text = [OLD, line.as_bytes(), b"\n", NEW, b"cut"].concat();
            assert_eq!(of(&text), UnknownLines { lines: 1, first: line.to_owned() });
        }
    }

    #[test]
    fn a_line_that_is_cut_off_has_no_value() {
        for end in 0..NEW.len() {
            let whole = values(&NEW[..end]);
            assert_eq!(whole, values(NEW)[..whole.len()], "cut at {end}");
        }
    }

    #[test]
    fn other_lines_have_no_value() {
        for text in [
            "open -1 samples [usec] 1 2 3\n",
            "open 1 samples usec 1 2 3\n",
            "open 1 sample [usec] 1 2 3\n",
            "open +1 samples [regs]\n",
            "open 99999999999999999999 samples [regs]\n",
            "\n",
        ] {
            assert_eq!(values(text.as_bytes()), [], "{text}");
        }
        let [(_, 1, None, None)] = values(b"open 1 samples [usec] 1 2 x\n")[..] else { panic!("no sum") };
        let [(_, 1, None, None)] = values(b"a 1 samples [usec] 1 2 18446744073709551615\n")[..] else {
            panic!("too long a time")
        };
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..300), at in 0..NEW.len()) {
            black_box(lines(&text).count());
            let damaged = [&NEW[..at], &text, &NEW[at..]].concat();
            for line in lines(&damaged) {
                black_box((line.bytes(), line.time_ns()));
            }
        }
    }
}
