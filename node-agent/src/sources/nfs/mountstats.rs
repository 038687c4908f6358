//! Text of `/proc/self/mountstats`. Source: `nfs_show_stats` in `fs/nfs/super.c`, `rpc_clnt_show_stats` in
//! `net/sunrpc/stats.c` and `xs_tcp_print_stats` in `net/sunrpc/xprtsock.c` of Linux. Since statvers 1.1 the
//! lines of operations may have a number of errors (Linux 5.3), and the line of events two more numbers for
//! pNFS.

use super::super::mount_table::unescape;
use crate::sources::UnknownLines;

/// Operations whose lines are read, of versions 3 and 4.
pub(super) const OPERATIONS: [&str; 36] = [
    "READ",
    "WRITE",
    "COMMIT",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "OPEN",
    "OPEN_NOATTR",
    "OPEN_DOWNGRADE",
    "CLOSE",
    "CREATE",
    "MKDIR",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "SYMLINK",
    "READLINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "STATFS",
    "LOCK",
    "LOCKU",
    "DELEGRETURN",
    "LAYOUTGET",
    "LAYOUTCOMMIT",
    "LAYOUTRETURN",
    "SEQUENCE",
    "ALLOCATE",
    "DEALLOCATE",
    "COPY",
    "CLONE",
    "READ_PLUS",
];

/// Beginnings of lines that are left out by name: what is mounted how, and where the statistics begin.
const LEFT_OUT: [&str; 9] = [
    "opts:",
    "age:",
    "impl_id:",
    "caps:",
    "nfsv4:",
    "sec:",
    "fsc:",
    "RPC iostats version:",
    "per-op statistics",
];

/// Operations whose lines are left out by name: those of mounting, of sessions, of rights and locks that are
/// not taken, and of data that servers move between them.
const OPERATIONS_LEFT_OUT: [&str; 42] = [
    "NULL",
    "ROOT",
    "WRCACHE",
    "FSINFO",
    "PATHCONF",
    "OPEN_CONFIRM",
    "RENEW",
    "SETCLIENTID",
    "SETCLIENTID_CONFIRM",
    "LOCKT",
    "LOOKUP_ROOT",
    "LOOKUPP",
    "SERVER_CAPS",
    "GETACL",
    "SETACL",
    "FS_LOCATIONS",
    "RELEASE_LOCKOWNER",
    "SECINFO",
    "SECINFO_NO_NAME",
    "FSID_PRESENT",
    "EXCHANGE_ID",
    "CREATE_SESSION",
    "DESTROY_SESSION",
    "DESTROY_CLIENTID",
    "BIND_CONN_TO_SESSION",
    "GET_LEASE_TIME",
    "RECLAIM_COMPLETE",
    "GETDEVICEINFO",
    "GETDEVICELIST",
    "TEST_STATEID",
    "FREE_STATEID",
    "LAYOUTSTATS",
    "LAYOUTERROR",
    "SEEK",
    "OFFLOAD_CANCEL",
    "OFFLOAD_STATUS",
    "COPY_NOTIFY",
    "GETXATTR",
    "SETXATTR",
    "LISTXATTRS",
    "REMOVEXATTR",
    "ZERO_RANGE",
];

/// Columns of the lines of bytes, of events and of an operation that all versions have.
const BYTES_COLUMNS: usize = 8;
const EVENTS_COLUMNS: usize = 25;
const OPERATION_COLUMNS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section<'a> {
    /// Exported directory: `server:/export`.
    pub(super) export: String,
    pub(super) point: String,
    body: &'a str,
}

/// Mounts of NFS in a text, without an incomplete last line.
pub(super) fn sections(text: &str) -> Vec<Section<'_>> {
    let mut found = Vec::new();
    // The section of the current lines, and its beginning; none within sections of other file systems.
    let mut current: Option<(String, String, usize)> = None;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        if !line.ends_with('\n') {
            break;
        }
        // Lines of other file systems begin with `device` or, without a source, with `no device`; those of a
        // section with a tab.
        if line.starts_with("device ") || line.starts_with("no device ") {
            close(&mut found, current.take(), text, offset);
            current = title(line).map(|(export, point)| (export, point, offset + line.len()));
        }
        offset += line.len();
    }
    close(&mut found, current, text, offset);
    found
}

fn close<'a>(
    found: &mut Vec<Section<'a>>,
    section: Option<(String, String, usize)>,
    text: &'a str,
    end: usize,
) {
    if let Some((export, point, begin)) = section {
        found.push(Section { export, point, body: text.get(begin..end).unwrap_or_default() });
    }
}

/// Complete lines about mounts of NFS that no rule takes: also the titles of mounts whose statistics have
/// another form.
pub(super) fn unknown(text: &str) -> UnknownLines {
    let mut unknown = UnknownLines::default();
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let is_title = line.starts_with("device ") && line.contains(" with fstype nfs");
        if is_title && title(line).is_none() && !line.contains(" with fstype nfsd") {
            unknown.add(line.as_bytes());
        }
    }
    sections(text).iter().for_each(|section| section.add_unknown(&mut unknown));
    unknown
}

/// Parses `device server:/export mounted on /mnt/a\040b with fstype nfs4 statvers=1.1`: the export and the
/// mount point of NFS.
fn title(line: &str) -> Option<(String, String)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words[..] {
        ["device", export, "mounted", "on", point, "with", "fstype", "nfs" | "nfs4", version]
            if version.starts_with("statvers=1.") =>
        {
            Some((unescape(export), unescape(point)))
        }
        _ => None,
    }
}

/// Numbers that all kinds of transports have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Transport {
    /// Connections made; `None` without connections.
    pub(super) connects: Option<u64>,
    pub(super) sends: u64,
    pub(super) receives: u64,
    /// Replies that belong to no request.
    pub(super) bad_xids: u64,
    /// Sum over all requests of the length of the queue of requests that wait for a slot.
    pub(super) backlog: u64,
}

impl Section<'_> {
    fn line(&self, key: &str) -> Option<&str> {
        self.body.lines().find_map(|line| line.trim_start().strip_prefix(key))
    }

    fn add_unknown(&self, unknown: &mut UnknownLines) {
        let mut is_of_operation = false;
        for line in self.body.lines() {
            let text = line.trim();
            let is_known = if let Some(numbers) = text.strip_prefix("bytes:") {
                are_numbers(numbers, BYTES_COLUMNS)
            } else if let Some(numbers) = text.strip_prefix("events:") {
                are_numbers(numbers, EVENTS_COLUMNS)
            } else if let Some(numbers) = text.strip_prefix("xprt:") {
                transport(numbers).is_some()
            } else if let Some((name, numbers)) = text.split_once(':').filter(|_| is_of_operation) {
                let is_taken = OPERATIONS.contains(&name) && are_numbers(numbers, OPERATION_COLUMNS);
                is_taken || OPERATIONS_LEFT_OUT.contains(&name)
            } else {
                text.is_empty() || LEFT_OUT.iter().any(|beginning| text.starts_with(beginning))
            };
            is_of_operation |= text == "per-op statistics";
            if !is_known {
                unknown.add(line.as_bytes());
            }
        }
    }

    /// Number of the line of bytes: read and written by applications (normal, then direct), read and written
    /// on the server, pages read and written.
    pub(super) fn bytes(&self, column: usize) -> Option<u64> {
        number(self.line("bytes:")?, column)
    }

    /// Number of the line of events, in the order of `enum nfs_stat_eventcounters`.
    pub(super) fn event(&self, column: usize) -> Option<u64> {
        number(self.line("events:")?, column)
    }

    /// Sum over the mount's transports; `None` without any.
    pub(super) fn transport(&self) -> Option<Transport> {
        let lines = self.body.lines().filter_map(|line| line.trim_start().strip_prefix("xprt:"));
        lines.filter_map(transport).reduce(|a, b| Transport {
            connects: a.connects.zip(b.connects).map(|(a, b)| a.wrapping_add(b)),
            sends: a.sends.wrapping_add(b.sends),
            receives: a.receives.wrapping_add(b.receives),
            bad_xids: a.bad_xids.wrapping_add(b.bad_xids),
            backlog: a.backlog.wrapping_add(b.backlog),
        })
    }

    /// Operations with their numbers: operations, transmissions, timeouts, bytes sent and received,
    /// milliseconds queued, until the reply and in all, and errors (since Linux 5.3).
    pub(super) fn operations(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut lines = self.body.lines();
        lines.by_ref().find(|line| line.trim() == "per-op statistics");
        lines.filter_map(|line| line.trim_start().split_once(':'))
    }
}

/// Parses the line of a transport: its kind, then numbers. UDP lacks those of connections.
fn transport(line: &str) -> Option<Transport> {
    let (kind, numbers) = line.trim_start().split_once(' ')?;
    let at = |column| number(numbers, column);
    let (connects, first) = match kind {
        // Port, binds, connects, time to connect, idle time.
        "tcp" | "rdma" | "tcp-tls" => (Some(at(2)?), 5),
        // Port, binds.
        "udp" => (None, 2),
        // Binds, connects, time to connect, idle time.
        "local" => (Some(at(1)?), 4),
        _ => return None,
    };
    Some(Transport {
        connects,
        sends: at(first)?,
        receives: at(first + 1)?,
        bad_xids: at(first + 2)?,
        // Behind the sum of requests in progress.
        backlog: at(first + 4)?,
    })
}

fn are_numbers(line: &str, columns: usize) -> bool {
    line.split_ascii_whitespace().take(columns).filter(|word| number(word, 0).is_some()).count() == columns
}

/// Number in a column of a line, counted from 0.
pub(super) fn number(line: &str, column: usize) -> Option<u64> {
    let word = line.split_ascii_whitespace().nth(column)?;
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
}

pub(in crate::sources) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let found = sections(&text);
    let end = text.rfind('\n').map_or(0, |last| last + 1);
    assert_eq!(found, sections(text.get(..end).unwrap_or_default()));
    for section in &found {
        assert!(text.contains(section.body));
        for column in 0..30 {
            std::hint::black_box((section.bytes(column), section.event(column)));
        }
        let transports = section.body.lines().filter(|line| line.trim_start().starts_with("xprt:")).count();
        assert!(section.transport().is_none() || transports > 0);
        for (operation, numbers) in section.operations() {
            assert!(!operation.contains(':'));
            for (column, word) in numbers.split_ascii_whitespace().enumerate().take(9) {
                assert!(number(numbers, column).is_none() || word.trim_start_matches('0').len() <= 20);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use proptest::prelude::*;

    use super::*;
    use crate::sources::nfs::tests::{NEW, OLD};

    #[test]
    fn finds_the_mounts_of_nfs() {
        let names = |text| {
            sections(text).into_iter().map(|section| (section.export, section.point)).collect::<Vec<_>>()
        };
        let pair = |export: &str, point: &str| (export.to_owned(), point.to_owned());
        assert_eq!(names(NEW), [pair("10.1.0.2:/export/home", "/home"), pair("nas:/a b", "/mnt/a b")]);
        assert_eq!(names(OLD), [pair("filer:/vol/scratch", "/scratch")]);
        assert_eq!(names(""), []);
        assert_eq!(names("device a:/b mounted on /c with fstype nfs statvers=2.0\n"), [], "another format");
    }

    #[test]
    fn lines_that_no_rule_takes_are_counted() {
        for text in [NEW, OLD, "", "device nfsd mounted on /proc/fs/nfsd with fstype nfsd\n"] {
            assert_eq!(unknown(text), UnknownLines::default(), "{text}");
        }
        for (line, other, first) in [
            ("\tbytes:\t", "\tbytes:\tx ", "\tbytes:\tx"),
            ("\txprt:\tudp ", "\txprt:\tquic ", "\txprt:\tquic"),
            ("\tevents:\t", "\tdelegations:\t3\n\tevents:\t", "\tdelegations:\t3"),
            (
                "per-op statistics\n",
                "per-op statistics\n\t    TELEPORT: 1 1 0 8 8 0 0 0\n",
                "\t    TELEPORT: 1 1 0 8 8",
            ),
            ("READ: ", "READ: none ", "\t        READ: none"),
        ] {
            let text = OLD.replacen(line, other, 1);
            assert_ne!(text, OLD, "{line}");
            let found = unknown(&text);
            assert!(found.lines == 1 && found.first.trim().starts_with(first.trim()), "{found:?}");
        }
        let title = "device a:/b mounted on /c with fstype nfs4 statvers=2.0\n\tbytes:\t1\n";
        assert_eq!(unknown(title).lines, 1, "another form, of which no line is read");
    }

    #[test]
    fn parses_a_mount_of_version_4() {
        let [home, other] = &sections(NEW)[..] else { panic!("two mounts") };
        assert_eq!(
            [0, 4, 7, 8].map(|column| home.bytes(column)),
            [Some(1_234_567), Some(1_300_000), Some(99), None]
        );
        assert_eq!([4, 24, 26].map(|column| home.event(column)), [Some(57), Some(3), Some(12)]);
        assert_eq!(
            home.transport(),
            Some(Transport { connects: Some(3), sends: 1400, receives: 1398, bad_xids: 1, backlog: 5 }),
            "the sum of two connections"
        );
        let operations: Vec<_> =
            home.operations().map(|(name, numbers)| (name, number(numbers, 7), number(numbers, 8))).collect();
        assert_eq!(
            operations,
            [("NULL", Some(0), Some(0)), ("READ", Some(5150), Some(2)), ("GETATTR", Some(310), Some(0))]
        );
        assert_eq!(other.operations().count(), 1);
        assert_eq!(other.transport().unwrap().connects, Some(2));
    }

    #[test]
    fn parses_a_mount_of_version_3_over_udp() {
        let [scratch] = &sections(OLD)[..] else { panic!("one mount") };
        assert_eq!((scratch.event(24), scratch.event(25)), (Some(1), None), "without pNFS");
        assert_eq!(
            scratch.transport(),
            Some(Transport { connects: None, sends: 412, receives: 410, bad_xids: 0, backlog: 0 })
        );
        let read = scratch.operations().find(|(name, _)| *name == "READ").unwrap().1;
        assert_eq!((number(read, 7), number(read, 8)), (Some(88), None), "without errors");
    }

    #[test]
    fn a_text_that_is_cut_off_has_no_wrong_number() {
        for end in (0..NEW.len()).filter(|end| NEW.is_char_boundary(*end)) {
            for (cut, whole) in sections(&NEW[..end]).iter().zip(sections(NEW)) {
                assert_eq!((&cut.export, &cut.point), (&whole.export, &whole.point));
                assert!(cut.bytes(0).is_none_or(|value| Some(value) == whole.bytes(0)));
                assert!(cut.operations().all(|operation| whole.operations().any(|other| other == operation)));
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}", at in any::<prop::sample::Index>()) {
            let lines: Vec<&str> = NEW.split_inclusive('\n').collect();
            let at = at.index(lines.len());
            let damaged = [&lines[..at], &[&*text], &lines[at..]].concat().concat();
            for section in sections(&text).into_iter().chain(sections(&damaged)) {
                black_box((section.bytes(3), section.event(26), section.transport()));
                for (_, numbers) in section.operations() {
                    black_box(number(numbers, 8));
                }
            }
        }
    }
}
