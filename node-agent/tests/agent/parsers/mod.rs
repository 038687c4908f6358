//! Tests of the parsers with text of real kernels: every value of every file that the catalogue reads, also
//! while the text changes.

mod fixtures;
mod naive;

use std::collections::{BTreeMap, BTreeSet};

use polymeter_agent::sources::Reading;
use polymeter_agent::sources::layout::{Fit, Layout};
use polymeter_proto::catalogue::Form;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use fixtures::{Fixture, present, read};

/// Number of values of each set of fixtures.
const VALUES: [(&str, usize); 16] = [
    ("sysfs", 144),
    ("v1-6.1", 432),
    ("v1-6.1-blkio-norule", 6),
    ("v1-6.1-blkio-writerule", 6),
    ("v1-6.1-empty", 71),
    ("v1-6.1-unified", 27),
    ("v1-6.18", 656),
    ("v1-6.18-unified", 28),
    ("v2-6.1", 462),
    ("v2-6.1-empty", 100),
    ("v2-6.1-limit-noio", 100),
    ("v2-6.1-nocontrollers", 27),
    ("v2-6.12", 497),
    ("v2-6.12-empty", 116),
    ("v2-6.12-limit-noio", 116),
    ("v2-6.12-nocontrollers", 28),
];

/// Metrics that a job's cgroup has on version 1 and on version 2.
const ON_BOTH: [&str; 44] = [
    "cpu.burst.time",
    "cpu.bursts",
    "cpu.local.throttled.time",
    "cpu.periods",
    "cpu.system",
    "cpu.throttled.periods",
    "cpu.throttled.time",
    "cpu.usage",
    "cpu.user",
    "hugetlb.current",
    "hugetlb.events.max",
    "hugetlb.limit",
    "io.discard.bytes",
    "io.discard.operations",
    "io.read.bytes",
    "io.read.operations",
    "io.write.bytes",
    "io.write.operations",
    "memory.active_anon",
    "memory.active_file",
    "memory.anon",
    "memory.anon_thp",
    "memory.current",
    "memory.events.max",
    "memory.events.oom_kill",
    "memory.file",
    "memory.file_dirty",
    "memory.file_mapped",
    "memory.file_writeback",
    "memory.inactive_anon",
    "memory.inactive_file",
    "memory.limit",
    "memory.peak",
    "memory.pgfault",
    "memory.pgmajfault",
    "memory.shmem",
    "memory.swapcached",
    "memory.unevictable",
    "memory.workingset_refault_anon",
    "memory.workingset_refault_file",
    "pids.current",
    "pids.events.max",
    "pids.limit",
    "pids.peak",
];

/// Numbers that are no metric: the file, and the names of the line and the column.
const NO_METRIC: [(&str, &str, &str); 10] = [
    ("memory.oom_control", "oom_kill_disable 1", "a setting"),
    ("stat", "btime 1", "when the machine booted, which is no quantity"),
    ("stat", "intr ", "one number for each interrupt line, behind the sum"),
    ("stat", "softirq ", "one number for each kind, behind the sum"),
    ("loadavg", " 3", "running/all, which stat and pids have"),
    ("loadavg", " 4", "the last process id"),
    ("cray/pm_counters", " 2", "the time of the measurement"),
    ("blkio.throttle", " Sync", "reads and writes in other words"),
    ("blkio.throttle", " Async", "reads and writes in other words"),
    ("blkio.throttle", " Total", "the sum"),
];

#[test]
fn every_value_is_what_a_naive_parser_finds() {
    let mut compared: BTreeMap<&str, usize> = BTreeMap::new();
    for fixture in fixtures::all() {
        let found = fixture.parsed();
        assert_eq!(found, naive::values(fixture, &fixture.text), "{}", fixture.path);
        *compared.entry(&fixture.set).or_default() += present(&found).len();
    }
    assert_eq!(compared.keys().copied().collect::<Vec<_>>(), VALUES.map(|(set, _)| set));
    for (set, expected) in VALUES {
        assert_eq!(compared[set], expected, "values of the set {set}");
    }
}

#[test]
fn a_missing_limit_is_absent() {
    for (path, name) in [
        ("v1-6.1-empty/v1/memory/memory.limit_in_bytes", "memory.limit{}"),
        ("v1-6.1-empty/v1/hugetlb/hugetlb.2MB.limit_in_bytes", "hugetlb.limit{size=2MB}"),
        ("v1-6.1-empty/v1/hugetlb/hugetlb.1GB.limit_in_bytes", "hugetlb.limit{size=1GB}"),
        ("v1-6.1-empty/v1/pids/pids.max", "pids.limit{}"),
        ("v2-6.12-empty/v2/memory.max", "memory.limit{}"),
        ("v2-6.12-empty/v2/memory.high", "memory.limit.high{}"),
        ("v2-6.12-empty/v2/hugetlb.1GB.max", "hugetlb.limit{size=1GB}"),
    ] {
        assert_eq!(fixtures::find(path).parsed(), [(name.to_owned(), None)].into(), "{path}");
    }
    let limit = fixtures::find("v2-6.12-empty/v2/memory.max");
    assert_eq!(limit.text, "max\n");
    let mut layout = limit.layout();
    for text in ["4096\n", "max\n", "1048576\n"] {
        assert_eq!(follow(limit, &mut layout, text), Fit::Same);
    }
}

#[test]
fn every_number_of_the_kernel_has_a_metric() {
    let mut missing = BTreeSet::new();
    for fixture in fixtures::all() {
        for place in naive::without_metric(fixture, &fixture.text) {
            if !NO_METRIC.iter().any(|(file, line, _)| {
                fixture.file.path.starts_with(file) && (place.starts_with(line) || place.ends_with(line))
            }) {
                missing.insert(format!("{}: {place}", fixture.path));
            }
        }
    }
    assert!(missing.is_empty(), "the catalogue has no metric for {missing:#?}");

    let grown = fixtures::find("v2-6.12/v2/memory.stat");
    let unheard_of = format!("{}unheard_of 1\n", grown.text);
    assert_eq!(naive::without_metric(grown, &unheard_of), ["unheard_of 1"]);
}

/// Metrics of a job's cgroups in these sets.
fn names(sets: [&str; 2], hierarchy: &str) -> BTreeSet<String> {
    let files = fixtures::all()
        .iter()
        .filter(|fixture| sets.contains(&fixture.set.as_str()) && fixture.path.contains(hierarchy));
    files
        .flat_map(|fixture| {
            fixture.layout().slots().iter().map(|slot| slot.definition.name()).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn equal_metrics_have_the_same_name() {
    let (v1, v2) = (names(["v1-6.1", "v1-6.18"], "/v1/"), names(["v2-6.1", "v2-6.12"], "/v2/"));
    assert_eq!(v1.intersection(&v2).collect::<Vec<_>>(), ON_BOTH);
    for only_v1 in
        ["memory.local.rss", "memory.memsw.current", "memory.hierarchical_limit", "cpu.usage.per_cpu"]
    {
        assert!(v1.contains(only_v1) && !v2.contains(only_v1), "{only_v1}");
    }
    for only_v2 in ["memory.kernel", "memory.swap.current", "memory.limit.high", "pressure.cpu.some.total"] {
        assert!(v2.contains(only_v2) && !v1.contains(only_v2), "{only_v2}");
    }
}

#[test]
fn both_hierarchies_of_a_hybrid_machine_agree() {
    let v1 = fixtures::find("v1-6.18/v1/cpuacct/cpuacct.usage").parsed()["cpu.usage{}"].unwrap();
    let v2 = fixtures::find("v1-6.18-unified/v2/cpu.stat").parsed()["cpu.usage{}"].unwrap();
    assert_eq!(v1 / 1_000, v2 / 1_000, "{v1} ns and {v2} ns were taken at the same time");
}

/// Reads `text` with a layout of another text: each value is that of a complete line, or absent.
fn follow(fixture: &Fixture, layout: &mut Layout, text: &str) -> Fit {
    let (found, fit) = read(layout, text.as_bytes());
    let whole_lines = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let expected = naive::values(fixture, whole_lines);
    for (name, value) in found {
        assert_eq!(value, expected.get(&name).copied().flatten(), "{}: {name} of:\n{text}", fixture.path);
    }
    fit
}

/// Widens every number by a digit, if it has room for one.
fn widened(form: Form, text: &str) -> String {
    let key_words = match form {
        Form::Values => 0,
        Form::Keyed | Form::Pairs => 1,
        Form::Operations => 2,
        Form::KeyedAt(key) => key + 1,
    };
    let mut wider = String::new();
    for line in text.split_inclusive('\n') {
        let mut seen = 0;
        for word in line.split_inclusive([' ', '\n']) {
            let number_at = word.find('=').map_or(0, |equals| equals + 1);
            let digits = word[number_at..].trim_end();
            let fits = (1..10).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            let is_value = seen >= key_words && fits;
            wider.extend([&word[..number_at], if is_value { "1" } else { "" }, &word[number_at..]]);
            seen += usize::from(!word.trim_end().is_empty());
        }
    }
    wider
}

#[test]
fn numbers_may_grow_and_shrink() {
    for fixture in fixtures::all() {
        let wider = widened(fixture.form(), &fixture.text);
        let mut layout = fixture.layout();
        for text in [&wider, &fixture.text, &wider] {
            assert_eq!(follow(fixture, &mut layout, text), Fit::Same, "{}", fixture.path);
        }
        assert_eq!(
            follow(fixture, &mut fixture.layout_of(&wider), &fixture.text),
            Fit::Same,
            "{}",
            fixture.path
        );
    }
}

#[test]
fn lines_may_appear_disappear_and_move() {
    let with_lines = fixtures::all().iter().filter(|fixture| fixture.form() != Form::Values);
    for fixture in with_lines {
        let lines = fixture.lines();
        let mut layout = fixture.layout();
        let all = naive::values(fixture, &fixture.text);
        for at in 0..lines.len() {
            let other = [&lines[..at], &["x x x 1\n"], &lines[at + 1..]].concat().concat();
            let left = naive::values(fixture, &other);
            let has_lost = all.keys().any(|name| !left.contains_key(name));
            let fit = follow(fixture, &mut layout, &other);
            assert!(fit == Fit::Changed || !has_lost, "{}:\n{other}", fixture.path);
            let shorter = [&lines[..at], &lines[at + 1..]].concat().concat();
            let longer = [&lines[..at], &["x x x 1\n"], &lines[at..]].concat().concat();
            for text in [shorter, longer] {
                assert_eq!(follow(fixture, &mut layout, &text), Fit::Changed, "{}", fixture.path);
            }
        }
        let reversed: String = lines.iter().rev().copied().collect();
        for text in [&reversed, &reversed, &fixture.text] {
            assert_eq!(follow(fixture, &mut layout, text), Fit::Same, "{}", fixture.path);
        }
    }
}

#[test]
fn a_text_that_is_cut_off_has_no_wrong_value() {
    for fixture in fixtures::all() {
        assert!(
            fixture.text.is_empty() || fixture.text.ends_with('\n'),
            "{}: so ends every kernel file",
            fixture.path
        );
        let beginning: String = fixture.lines().into_iter().take(40).collect();
        let mut layout = fixture.layout_of(&beginning);
        for end in 0..beginning.len() {
            assert_eq!(
                follow(fixture, &mut layout, &beginning[..end]),
                Fit::Changed,
                "{} cut at {end}",
                fixture.path
            );
        }
        let longer = format!("{beginning}x");
        assert_eq!(follow(fixture, &mut layout, &longer), Fit::Changed, "{} begins a line", fixture.path);
        // A layout of a truncated text ignores an incomplete line, too.
        let cut = &beginning[..beginning.len().saturating_sub(2)];
        follow(fixture, &mut fixture.layout_of(cut), cut);
    }
}

#[test]
fn refuses_text_that_is_no_number() {
    let fixture = fixtures::find("v2-6.12/v2/memory.current");
    for text in ["garbage\n", "-1\n", "1.5\n", "\n", " \n", "18446744073709551616\n", "\u{fffd}\n"] {
        let (values, fit) = read(&mut fixture.layout(), text.as_bytes());
        assert_eq!((values["memory.current{}"], fit), (None, Fit::Changed), "{text:?}");
    }
    let error = Layout::discover(fixture.form(), b"garbage\n", &fixture.wanted, &[]).unwrap_err();
    assert_eq!(error.to_string(), "line 1: cannot find a value for memory.current in `garbage`");
}

#[test]
fn a_device_is_seen_when_it_has_its_first_io() {
    let fixture = fixtures::find("v2-6.12/v2/io.stat");
    let idle = fixtures::find("v2-6.12-limit-noio/v2/io.stat");
    assert_eq!(idle.text, "254:0 \n");
    let [zram, disk] = fixture.lines()[..] else { panic!("two devices") };
    let zram_and_idle = format!("{zram}{}", idle.text);
    let accounted = "254:0 cost.usage=0\n";
    let accounted_disk = format!("{} cost.usage=7\n", disk.trim_end());

    for (before, after) in [
        ("", disk),
        (idle.text.as_str(), disk),
        (&idle.text, &fixture.text),
        (&zram_and_idle, &fixture.text),
        (accounted, &accounted_disk),
    ] {
        let mut layout = fixture.layout_of(before);
        assert_eq!(follow(fixture, &mut layout, before), Fit::Same, "{before}");
        assert_eq!(follow(fixture, &mut layout, after), Fit::Changed, "{before}{after}");
        let mut anew = fixture.layout_of(after);
        assert_eq!(follow(fixture, &mut anew, after), Fit::Same, "{after}");
        assert_eq!(anew.slots().len(), 6 * after.lines().count(), "{after}");
    }
}

#[test]
fn devices_without_a_line_of_their_own_hide_no_other() {
    let fixture = fixtures::find("v2-6.12/v2/io.stat");
    let series = |text: &str| {
        let mut layout = fixture.layout_of(text);
        assert_eq!(follow(fixture, &mut layout, text), Fit::Same, "{text}");
        layout.slots().iter().map(|slot| slot.labels.clone()).collect::<BTreeSet<_>>()
    };
    let alone = series("8:0 rbytes=1 wbytes=2\n253:0 rbytes=3 wbytes=4\n");
    assert_eq!(alone.len(), 2);
    // Devices that have counted nothing come, go and change places; those that count remain what they are.
    let texts = [
        "7:0 8:0 rbytes=5 wbytes=6\n253:0 rbytes=7 wbytes=8\n",
        "7:1 7:0 8:0 rbytes=9 wbytes=10\n253:0 rbytes=11 wbytes=12\n",
        "8:0 rbytes=13 wbytes=14\n7:2 7:1 253:0 rbytes=15 wbytes=16\n7:3 \n",
        "7:2 7:0 253:0 rbytes=17 wbytes=18\n7:1 8:0 rbytes=19 wbytes=20\n11:0 7:9 \n",
    ];
    for before in texts {
        assert_eq!(series(before), alone, "{before}");
        for after in texts {
            let (values, fit) = read(&mut fixture.layout_of(before), after.as_bytes());
            assert!(fit == Fit::Changed || before == after, "{before}{after}");
            let expected = naive::values(fixture, after);
            for (name, value) in values.into_iter().filter(|(_, value)| value.is_some()) {
                assert_eq!(value, expected[&name], "{name} of {after}");
            }
        }
    }
}

fn unknown(path: &str, text: &str) -> (usize, String) {
    let unknown = fixtures::find(path).layout_of(text).unknown().clone();
    (unknown.lines, unknown.first)
}

#[test]
fn lines_of_no_device_are_counted() {
    for fixture in fixtures::all() {
        assert_eq!(fixture.layout().unknown().lines, 0, "{}", fixture.path);
    }
    // The kernel writes `(unknown)` for each device that it shows to nobody: the second one has no series.
    let text = "8:0 rbytes=1 wbytes=2\nrbytes=3 wbytes=4\n(unknown) rbytes=5\n(unknown) rbytes=6\n8:16 \n";
    assert_eq!(unknown("v2-6.12/v2/io.stat", text), (2, "rbytes=3 wbytes=4".to_owned()));
    assert_eq!(unknown("v2-6.12/v2/io.stat", "7:0 8:0 rbytes=5 wbytes=6\n8:32 \n"), (0, String::new()));
    let disks = fixtures::find("v2-6.12/proc/diskstats");
    assert_eq!(
        unknown(&disks.path, &format!("{}   8       0\n", disks.text)),
        (1, "   8       0".to_owned())
    );
    let interfaces = fixtures::find("v2-6.12/proc/net/dev");
    let nameless = "  : 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16";
    let text = format!("{}{nameless}\n", interfaces.text);
    assert_eq!(unknown(&interfaces.path, &text), (1, nameless.to_owned()));
}

/// Lines of kernels to come, and damaged ones.
fn any_line() -> impl Strategy<Value = String> {
    let shapes = [
        "zz{} 1",
        "zz{}: 1 2 3",
        "zz{}",
        "9 {} zz{} 4",
        "zz{} a=1 b=2",
        "a{}=1",
        "8:{} Read 5",
        "8:{} Sync 6",
        "Total {}",
        "zz{} zz zz 7",
        "btime {}",
        "cpu{} 1 2",
        "",
        " \t",
        "x|y {}",
        "nr_zz{} 3",
        "some zz{}=4",
        "9:{} ",
    ];
    (proptest::sample::select(shapes.to_vec()), 100..10_000_u32)
        .prop_map(|(shape, number)| shape.replace("{}", &number.to_string()))
}

/// True for a line that the parser leaves out by the words that it knows.
fn is_left_out(form: Form, line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [first, second] = [0, 1].map(|place| words.get(place).copied().unwrap_or_default());
    let repeats = ["Sync", "Async", "Total"];
    words.is_empty()
        || match form {
            Form::Operations => repeats.contains(&first) || repeats.contains(&second),
            Form::Keyed => {
                line.contains('|')
                    || ["btime", "oom_kill_disable"].contains(&first)
                    || line == "cpu user system"
            }
            Form::Values => true,
            Form::Pairs | Form::KeyedAt(_) => false,
        }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn each_line_is_taken_left_out_by_name_or_counted(fixture in any_fixture(), added in vec(any_line(), 0..6)) {
        let mut lines: Vec<&str> = fixture.text.lines().collect();
        let mut names = BTreeSet::new();
        // The second line of a device is a case of its own.
        let added = added.iter().map(String::as_str);
        lines.extend(added.filter(|line| line.split_whitespace().all(|word| names.insert(word.to_owned()))));
        let text = lines.iter().flat_map(|line| [line, "\n"]).collect::<String>();
        let Ok(layout) = Layout::discover(fixture.form(), text.as_bytes(), &fixture.wanted, &fixture.path_labels) else {
            return Ok(());
        };
        let unknown: Vec<&&str> = lines
            .iter()
            .filter(|line| !naive::is_taken(fixture, line) && !is_left_out(fixture.form(), line))
            .collect();
        prop_assert_eq!(layout.unknown().lines, unknown.len(), "{}: {:?}", fixture.path, unknown);
    }
}

#[test]
fn a_new_disk_is_seen() {
    let fixture = fixtures::find("v2-6.12/proc/diskstats");
    let more = format!("{}   8       0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n", fixture.text);
    let mut layout = fixture.layout();
    assert_eq!(follow(fixture, &mut layout, &more), Fit::Changed);
    let (values, fit) = read(&mut fixture.layout_of(&more), more.as_bytes());
    assert_eq!(fit, Fit::Same);
    assert_eq!(values["node.disk.read.time{device=sda}"], Some(4_000_000));
    assert_eq!(values["node.disk.flush.time{device=sda}"], Some(17_000_000));
}

fn any_fixture() -> impl Strategy<Value = &'static Fixture> {
    any::<Index>().prop_map(|index| index.get(fixtures::all()))
}

/// Generates bytes, many of which are typical of kernel files.
fn any_text() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        proptest::sample::select(vec![
            "\n",
            " ",
            "\t",
            "=",
            ":",
            ".",
            "max",
            "cpu0",
            "some",
            "total=",
            "1",
            "254:0 Read 1\n"
        ])
        .prop_map(|token| token.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 1..4),
    ];
    proptest::collection::vec(token, 0..100).prop_map(|tokens| tokens.concat())
}

/// Discovers in one text and reads another. The result is irrelevant, as long as neither panics.
fn discover_and_read(fixture: &Fixture, discovered: &[u8], texts: &[&[u8]]) {
    if let Ok(mut layout) =
        Layout::discover(fixture.form(), discovered, &fixture.wanted, &fixture.path_labels)
    {
        for text in texts {
            read(&mut layout, text);
            layout.read(text, &mut Reading::default());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn no_bytes_make_it_panic(fixture in any_fixture(), one in any_text(), other in any_text()) {
        discover_and_read(fixture, &one, &[&one, &other, fixture.text.as_bytes()]);
        discover_and_read(fixture, fixture.text.as_bytes(), &[&one, &other]);
    }

    #[test]
    fn no_damage_to_a_kernel_file_makes_it_panic(
        fixture in any_fixture(),
        edits in proptest::collection::vec((any::<Index>(), 0_usize..20, any_text()), 1..6),
    ) {
        let mut text = fixture.text.clone().into_bytes();
        for (at, removed, inserted) in edits {
            let start = at.index(text.len() + 1);
            let end = (start + removed).min(text.len());
            text.splice(start..end, inserted);
        }
        discover_and_read(fixture, fixture.text.as_bytes(), &[&text, fixture.text.as_bytes()]);
        discover_and_read(fixture, &text, &[fixture.text.as_bytes(), &text]);
    }

    #[test]
    fn whole_lines_in_any_order_keep_their_values(
        fixture in any_fixture(),
        changes in proptest::collection::vec((any::<u32>(), any::<bool>(), any::<bool>()), 200),
        cuts in proptest::collection::vec(any::<Index>(), 3),
    ) {
        // Each line has a position, may be missing, and may have wider numbers.
        let mut lines: Vec<_> = fixture.lines().into_iter().zip(changes).filter(|(_, (_, kept, _))| *kept).collect();
        let mut layout = fixture.layout();
        follow(fixture, &mut layout, &lines.iter().map(|(line, _)| *line).collect::<String>());
        lines.sort_by_key(|(_, (place, ..))| *place);
        let text: String = lines
            .iter()
            .map(|(line, (_, _, wider))| if *wider { widened(fixture.form(), line) } else { (*line).to_owned() })
            .collect();
        follow(fixture, &mut layout, &text);
        for cut in cuts {
            follow(fixture, &mut layout, &text[..cut.index(text.len() + 1)]);
        }
        follow(fixture, &mut layout, &fixture.text);
    }
}
