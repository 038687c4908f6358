//! Answers of `mmpmon -p`. Source: "mmpmon command" and "Display I/O statistics per mounted file system" of
//! the documentation of IBM Storage Scale: `_fs_io_s_ _n_ 10.1.2.3 _nn_ node1 _rc_ 0 _t_ 1579358234 _tu_
//! 53212 _cl_ cluster _fs_ scratch _d_ 48 _br_ 205607400434 ...`, one line for each file system, of keys and
//! values.

use crate::sources::UnknownLines;

/// Keys of the counters: bytes read and written, opens, closes, reads, writes, directories read, updates of
/// inodes.
pub(super) const KEYS: [&str; 8] = ["_br_", "_bw_", "_oc_", "_cc_", "_rdc_", "_wc_", "_dir_", "_iu_"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileSystem<'a> {
    pub(super) name: &'a str,
    /// Values of [`KEYS`].
    pub(super) counters: [Option<u64>; KEYS.len()],
}

/// True if `text` has the answer to `ver`, which is asked after `fs_io_s` to mark the end of its lines.
pub(super) fn is_complete(text: &[u8]) -> bool {
    text.split_inclusive(|byte| *byte == b'\n')
        .any(|line| line.starts_with(b"_ver_ ") && line.ends_with(b"\n"))
}

pub(super) fn file_systems(text: &str) -> impl Iterator<Item = FileSystem<'_>> {
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).filter_map(file_system)
}

/// Lines that are not understood, or whose file system is not `mounted`.
pub(super) fn unknown(text: &str, mounted: impl Fn(&str) -> bool) -> UnknownLines {
    let mut unknown = UnknownLines::default();
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let mut words = line.split_ascii_whitespace();
        let is_known = match words.next() {
            None | Some("_ver_") => true,
            Some("_fs_io_s_") if line.contains(" _rc_ 1 ") => true,
            Some(_) => file_system(line)
                .is_some_and(|found| mounted(found.name) && found.counters.iter().all(Option::is_some)),
        };
        if !is_known {
            unknown.add(line.as_bytes());
        }
    }
    unknown
}

fn file_system(line: &str) -> Option<FileSystem<'_>> {
    let mut words = line.split_ascii_whitespace();
    (words.next()? == "_fs_io_s_").then_some(())?;
    let words: Vec<&str> = words.collect();
    let (pairs, _) = words.as_chunks::<2>();
    let value = |wanted: &str| pairs.iter().find(|[key, _]| *key == wanted).map(|[_, value]| *value);
    // 1: no file system is mounted; its other values are meaningless.
    (value("_rc_")? == "0").then_some(())?;
    let counters = KEYS.map(|key| {
        let digits = value(key)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    });
    Some(FileSystem { name: value("_fs_")?, counters })
}

pub(in crate::sources) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let end = text.rfind('\n').map_or(0, |last| last + 1);
    let whole = text.get(..end).unwrap_or_default();
    assert!(file_systems(&text).eq(file_systems(whole)));
    assert!(file_systems(&text).all(|found| !found.name.is_empty()));
    assert_eq!(is_complete(text.as_bytes()), is_complete(whole.as_bytes()));
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use proptest::prelude::*;

    use super::*;
    use crate::sources::gpfs::tests::ANSWER;

    #[test]
    fn parses_an_answer() {
        let found: Vec<_> = file_systems(ANSWER).collect();
        let [scratch, project] = &found[..] else { panic!("two file systems: {found:?}") };
        let counters =
            [205_607_400_434, 74_839_282_351, 2_377_656, 2_201_576, 59_420_404, 18_874_626, 40_971, 544_768];
        assert_eq!((scratch.name, scratch.counters), ("scratch", counters.map(Some)));
        assert_eq!((project.name, project.counters[0], project.counters[2]), ("project", Some(0), Some(513)));
    }

    #[test]
    fn keys_may_be_added_moved_and_missing() {
        let of =
            |line: &str| file_systems(&format!("{line}\n")).next().map(|found| found.counters[..3].to_vec());
        assert_eq!(of("_fs_io_s_ _rc_ 0 _x_ 1 _fs_ a _oc_ 3 _br_ 7"), Some(vec![Some(7), None, Some(3)]));
        assert_eq!(of("_fs_io_s_ _rc_ 0 _fs_ a _br_ -1 _bw_ x _oc_"), Some(vec![None, None, None]));
        assert_eq!(
            of("_fs_io_s_ _n_ 10.0.0.1 _nn_ n1 _rc_ 1 _t_ 1 _tu_ 2 _cl_ - _fs_ -"),
            None,
            "nothing is mounted"
        );
        assert_eq!(of("_io_s_ _rc_ 0 _fs_ a _br_ 7"), None);
    }

    #[test]
    fn lines_that_no_rule_takes_are_counted() {
        let of = |text: &str| unknown(text, |name| name != "other").lines;
        assert_eq!(of(ANSWER), 0);
        let nothing = "_fs_io_s_ _n_ 10.0.0.1 _nn_ n1 _rc_ 1 _t_ 1 _tu_ 2 _cl_ - _fs_ -\n";
        assert_eq!(of(nothing), 0, "nothing is mounted");
        let [line, ..] = ANSWER.split_inclusive('\n').collect::<Vec<_>>()[..] else { panic!("no line") };
        for (what, changed) in [
            ("a file system that is not mounted", line.replace("_fs_ scratch ", "_fs_ other ")),
            ("no number", line.replace("_br_ ", "_br_ x")),
            ("another answer", line.replace("_fs_io_s_", "_io_s_")),
            ("no file system", line.replace(" _fs_ ", " _gs_ ")),
        ] {
            assert_ne!(changed, line, "{what}");
            assert_eq!(of(&format!("{changed}{ANSWER}_cut_")), 1, "{what}");
        }
    }

    #[test]
    fn an_answer_is_complete_with_its_last_line() {
        for end in 0..ANSWER.len() {
            assert!(!is_complete(&ANSWER.as_bytes()[..end]), "cut at {end}");
            assert!(file_systems(&ANSWER[..end]).count() <= 2);
        }
        assert!(is_complete(ANSWER.as_bytes()));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}", at in 0..ANSWER.len()) {
            let damaged = format!("{}{text}{}", &ANSWER[..at], &ANSWER[at..]);
            for found in file_systems(&text).chain(file_systems(&damaged)) {
                black_box(found);
            }
            black_box(is_complete(damaged.as_bytes()));
        }
    }
}
