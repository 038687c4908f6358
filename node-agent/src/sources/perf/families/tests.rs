use super::super::forks::Fork;
use super::*;

const AT_100: Opening = Opening { ticks: (100, 101), last_pid: 500 };

/// Updates with processes in the session and process group of a process outside of the job.
fn update(families: &mut Families, all: &[(u32, u32, u64)]) -> FamilyChanges {
    update_led(
        families,
        &all.iter().map(|(pid, parent, started)| (*pid, *parent, *started, [9, 9])).collect::<Vec<_>>(),
    )
}

/// Updates with processes, each with its parent, its time of start, and the leaders of its session and
/// process group.
fn update_led(families: &mut Families, all: &[(u32, u32, u64, [u32; 2])]) -> FamilyChanges {
    update_logged(families, all, &Forks::default())
}

/// Like `update_led`, with a log of forks.
fn update_logged(families: &mut Families, all: &[(u32, u32, u64, [u32; 2])], forks: &Forks) -> FamilyChanges {
    let pids = all.iter().map(|(pid, ..)| *pid).collect();
    let new = all.iter().filter(|(pid, ..)| !families.knows(*pid));
    let new = new.map(|(pid, parent, started, leaders)| {
        (*pid, Listed { parent: *parent, started: *started, leaders: *leaders })
    });
    families.update(&pids, &new.collect(), forks)
}

fn open(pids: &[u32]) -> FamilyChanges {
    FamilyChanges { open: pids.to_vec(), close: Vec::new() }
}

#[test]
fn descendants_are_counted_once() {
    let mut families = Families::default();
    // 400 and its child 450 exist; 10 is outside of the job.
    let listed = [(400, 10, 90), (450, 400, 95)];
    assert_eq!(update(&mut families, &listed), open(&[400, 450]));
    families.opened(400, AT_100);
    families.opened(450, AT_100);
    // A child from before the opening, in the tick of it, and from after it in the same tick and later.
    let children = [(499, 400, 99), (500, 450, 100), (501, 450, 100), (502, 400, 101), (503, 502, 150)];
    assert_eq!(update(&mut families, &[&listed[..], &children].concat()), open(&[499, 500]));
}

#[test]
fn a_process_from_outside_has_events_of_its_own() {
    let mut families = Families::default();
    assert_eq!(update(&mut families, &[(400, 10, 90)]), open(&[400]));
    families.opened(400, AT_100);
    assert_eq!(update(&mut families, &[(400, 10, 90), (600, 10, 200)]), open(&[600]));
    // There was no room for it: its children have no events either.
    assert_eq!(update(&mut families, &[(400, 10, 90), (600, 10, 200), (601, 600, 210)]), open(&[601]));
    families.forget(600);
    assert_eq!(update(&mut families, &[(400, 10, 90), (600, 10, 200)]), open(&[600]), "tried again");
}

#[test]
fn events_stay_open_while_a_descendant_lives() {
    let mut families = Families::default();
    update(&mut families, &[(400, 10, 90)]);
    families.opened(400, AT_100);
    assert_eq!(update(&mut families, &[(400, 10, 90), (501, 400, 120)]), open(&[]));
    assert_eq!(update(&mut families, &[(501, 400, 120)]), open(&[]), "its child lives");
    let nothing = FamilyChanges { open: Vec::new(), close: vec![400] };
    assert_eq!(update(&mut families, &[]), nothing);
    assert_eq!(update(&mut families, &[]), open(&[]), "once");
}

#[test]
fn orphans_are_counted_if_anything_was() {
    let mut families = Families::default();
    assert_eq!(update(&mut families, &[(300, 1, 50)]), open(&[300]), "nothing was counted yet");
    families.opened(300, AT_100);
    assert_eq!(update(&mut families, &[(300, 1, 50), (501, 1, 130)]), open(&[]));
    assert_eq!(update(&mut families, &[(501, 1, 130)]), open(&[]), "the events of 300 may count it");
    assert_eq!(update(&mut families, &[]), FamilyChanges { open: Vec::new(), close: vec![300] });
}

#[test]
fn an_orphan_in_a_session_of_the_job_is_counted_whoever_adopts_it() {
    let mut families = Families::default();
    // 400 leads its session and group; 10 outside of the job has started it, and adopts orphans.
    let root = (400, 10, 90, [400, 400]);
    assert_eq!(update_led(&mut families, &[root]), open(&[400]));
    families.opened(400, AT_100);
    families.launched_by(10, [5]);
    let orphans = [(501, 10, 120, [400, 501]), (502, 10, 121, [502, 400]), (503, 10, 122, [400, 400])];
    assert_eq!(update_led(&mut families, &[&[root][..], &orphans].concat()), open(&[]));
    // From before the events, and from outside in a session of its own.
    let others = [(450, 10, 95, [400, 400]), (600, 10, 200, [600, 600])];
    let all = [&[root][..], &orphans, &others].concat();
    assert_eq!(update_led(&mut families, &all), open(&[450, 600]));
    // The leader has ended; its session is known by the others.
    assert_eq!(update_led(&mut families, &orphans), open(&[]));
    let all = [&orphans[..], &[(700, 10, 300, [400, 700])]].concat();
    assert_eq!(update_led(&mut families, &all), open(&[]));
}

#[test]
fn a_parent_that_has_adopted_before_or_stands_above_adopts_again() {
    let mut families = Families::default();
    assert_eq!(update(&mut families, &[(400, 10, 90)]), open(&[400]));
    families.opened(400, AT_100);
    families.launched_by(10, [5, 1]);
    // Each has a session of its own. 5 is above 10; nothing is known of 6.
    let daemons = [(501, 5, 120), (502, 6, 121)];
    assert_eq!(update(&mut families, &[&[(400, 10, 90)][..], &daemons].concat()), open(&[502]));
    assert_eq!(update(&mut families, &[(400, 10, 90), (503, 400, 130), (504, 503, 131)]), open(&[]));
    let left: BTreeSet<u32> = [400, 504].into();
    assert_eq!(families.orphans(&left), [504], "its parent 503 has ended");
    families.adopted(504, 10, &left);
    assert_eq!(update(&mut families, &[(400, 10, 90), (504, 10, 131), (505, 10, 140)]), open(&[]));
    assert_eq!(families.orphans(&left), [0; 0], "once");
    // Within the job, too, a process may adopt others.
    update(&mut families, &[(400, 10, 90), (506, 400, 150), (507, 506, 151)]);
    let left: BTreeSet<u32> = [400, 507].into();
    families.adopted(507, 400, &left);
    assert!(!families.adopters.contains(&400));
}

#[test]
fn a_parent_that_starts_processes_may_start_more() {
    let mut families = Families::default();
    update(&mut families, &[(400, 10, 90)]);
    families.opened(400, AT_100);
    families.launched_by(10, [5]);
    families.launched_by(5, []);
    assert!(families.knows_launcher(10) && !families.knows_launcher(6));
    assert_eq!(update(&mut families, &[(400, 10, 90), (600, 10, 200), (601, 5, 201)]), open(&[600, 601]));
}

/// A complete log of forks: process, parent, time.
fn log(forks: &[(u32, u32, u64)]) -> Forks {
    let mut log = Forks::begin();
    forks.iter().for_each(|(pid, parent, ticks)| log.add(*pid, Fork { parent: *parent, ticks: *ticks }));
    log
}

/// Each process has a session of its own, and 10 both adopts processes of the job and starts more.
#[test]
fn the_log_of_forks_tells_orphans_from_new_processes() {
    let root = (400, 10, 90, [400, 400]);
    let orphan = (510, 10, 120, [510, 510]);
    let launched = (600, 10, 200, [600, 600]);
    let begin = || {
        let mut families = Families::default();
        assert_eq!(update_led(&mut families, &[root]), open(&[400]));
        families.opened(400, AT_100);
        families.launched_by(10, [5]);
        families
    };
    // 400 has started 505, which has started 510 and ended. 10 has started 600 itself, and 610 by 605, which
    // has ended.
    let forks = log(&[(505, 400, 119), (510, 505, 120), (600, 10, 200), (605, 10, 210), (610, 605, 211)]);
    let daemon = (610, 10, 211, [610, 610]);
    let mut families = begin();
    let all = [root, orphan, launched, daemon];
    assert_eq!(update_logged(&mut families, &all, &forks), open(&[600, 610]));
    families.opened(600, Opening { ticks: (220, 221), last_pid: 700 });
    // The events of 400 stay open for the orphan, and count what it starts.
    let of_orphan = (800, 510, 300, [800, 800]);
    assert_eq!(update_logged(&mut families, &[orphan, of_orphan], &forks).close, [600]);
    let all_ended = FamilyChanges { open: Vec::new(), close: vec![400] };
    assert_eq!(update_logged(&mut families, &[], &forks), all_ended);

    // Without a log the orphan would be taken for a new process.
    assert_eq!(update_led(&mut begin(), &[root, orphan]), open(&[510]));
    // The same number, before: this log does not have the process that is listed.
    let before = log(&[(505, 400, 110), (510, 505, 111)]);
    assert_eq!(update_logged(&mut begin(), &[root, orphan], &before), open(&[510]));
    // Of a log with a gap only what it has is used.
    let mut gap = log(&[(510, 505, 120), (610, 605, 211), (605, 400, 210)]);
    gap.take(2, &[]);
    assert_eq!(update_logged(&mut begin(), &[root, orphan, daemon], &gap), open(&[510]));
}

/// A process of the job that adopts others and was followed later than those that it adopts.
#[test]
fn the_log_of_forks_has_the_ancestor_that_counts_an_orphan() {
    let mut families = Families::default();
    let (first, late) = ((400, 10, 90, [400, 400]), (490, 10, 95, [490, 490]));
    update_led(&mut families, &[first]);
    families.opened(400, AT_100);
    update_led(&mut families, &[first, late]);
    families.opened(490, Opening { ticks: (300, 301), last_pid: 900 });
    let orphan = (510, 490, 120, [510, 510]);
    let forks = log(&[(505, 400, 119), (510, 505, 120)]);
    assert_eq!(update_logged(&mut families, &[first, late, orphan], &forks), open(&[]));
}
