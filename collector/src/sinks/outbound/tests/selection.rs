//! Tests of the series that are sent: their selection, labels, windows and ends.

use std::sync::Arc;

use polymeter_proto::ledger::{JobDetails, JobFacts};

use super::fixture::{BEGIN_MS, Fixture, accept, times, times_of};
use super::receiver::{self, Contents, Receiver, Reply};
use crate::sinks::outbound::config::OutboundConfig;
use crate::sinks::outbound::request::STALE;
use crate::sinks::remote_write::V1;
use crate::sinks::testing::{ENDS, TestSession};

fn is_ended(contents: &Contents, device: &str) -> bool {
    contents.samples.iter().any(|(name, samples)| {
        name.iter().any(|(_, value)| value == device)
            && samples.last().is_some_and(|(_, bits)| *bits == STALE)
    })
}

#[test]
fn series_end_with_their_job_their_metric_and_their_agent() {
    for (number, end) in ENDS.into_iter().enumerate() {
        let fixture = Fixture::new(Receiver::start([], Reply::V1), &V1);
        let mut sink = fixture.sink();
        let mut session = TestSession::new(1, &["a"]);
        let mut frame = session.frame(times(BEGIN_MS, 3));
        end(&session, &mut frame);
        accept(&mut sink, frame);
        fixture.drive(&mut sink, |contents| is_ended(contents, "a").then_some(()));
        if number < 2 {
            fixture.drive(&mut sink, |contents| is_ended(contents, "polymeter_job_info").then_some(()));
        } else {
            // The job itself continues without the metric.
            let facts_ended =
                fixture.receiver.wait_for(|contents| Some(is_ended(contents, "polymeter_job_info")));
            assert!(!facts_ended);
        }
        // It continues, as after a restart of the agent.
        let mut session = TestSession::new(2, &["a"]);
        accept(&mut sink, session.frame(times(BEGIN_MS + 10, 3)));
        fixture.drive(&mut sink, |contents| (times_of(contents, "a").len() == 6).then_some(()));
    }
}

#[test]
fn facts_of_a_job_become_labels_when_they_are_known() {
    let fixture = Fixture::new(Receiver::start([], Reply::V1), &V1);
    let mut sink = fixture.sink();
    let mut session = TestSession::new(1, &["a"]);
    accept(&mut sink, session.frame(times(BEGIN_MS, 3)));
    let mut frame = session.frame(times(BEGIN_MS + 10, 3));
    let facts = JobFacts {
        account: Some("acc".try_into().unwrap()),
        queue: Some("q".try_into().unwrap()),
        ..JobFacts::default()
    };
    let details = JobDetails { name: Some("my \"job\"".into()), ..JobDetails::default() };
    frame.job_facts.push((Arc::clone(&session.job), facts));
    frame.job_details.push((Arc::clone(&session.job), details));
    accept(&mut sink, frame);
    let found = fixture.drive(&mut sink, |contents| {
        let samples = contents.samples.iter();
        let facts: Vec<_> =
            samples.filter(|(name, _)| name.iter().any(|(_, value)| value == "polymeter_job_info")).collect();
        let has_end = facts.iter().any(|(_, samples)| samples.last().is_some_and(|(_, bits)| *bits == STALE));
        let owned = facts.iter().map(|(name, samples)| ((*name).clone(), (*samples).clone()));
        (facts.len() == 2 && has_end).then(|| owned.collect::<Vec<_>>())
    });
    let (with, _) = found.iter().find(|(labels, _)| labels.iter().any(|(n, _)| n == "account")).unwrap();
    let value = |name: &str| with.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    assert_eq!(
        (value("account"), value("partition"), value("name")),
        (Some("acc"), Some("q"), Some("my \"job\""))
    );
    let without = found.iter().find(|(labels, _)| labels.iter().all(|(n, _)| n != "account")).unwrap();
    assert_eq!(without.1.last().unwrap().1, STALE, "the series with fewer facts has ended");
}

fn values(contents: &Contents, suffix: &str) -> Vec<(i64, f64)> {
    let name = contents
        .samples
        .keys()
        .find(|name| name.iter().any(|(_, v)| *v == format!("polymeter_cpu_usage_{suffix}")));
    let samples = name.and_then(|name| contents.samples.get(name)).cloned().unwrap_or_default();
    samples.into_iter().map(|(ms, bits)| (ms - BEGIN_MS, f64::from_bits(bits))).collect()
}

#[test]
fn periods_below_a_millisecond_become_windows() {
    let fixture = Fixture::new(Receiver::start([], Reply::V1), &V1);
    let mut sink = fixture.sink();
    let times_us = (0..100).map(|at| BEGIN_MS * 1000 + at * 100).collect();
    accept(&mut sink, TestSession::new(1, &["a"]).frame(times_us));
    fixture.drive(&mut sink, |contents| (values(contents, "max").len() == 10).then_some(()));
    fixture.receiver.wait_for(|contents| {
        let expected =
            |of: fn(i32) -> i32| (0..10).map(|ms| (i64::from(ms), f64::from(of(ms)))).collect::<Vec<_>>();
        assert_eq!(values(contents, "total"), expected(|ms| ms * 10 + 9));
        assert_eq!(values(contents, "min"), expected(|ms| ms * 10));
        assert_eq!(values(contents, "max"), expected(|ms| ms * 10 + 9));
        Some(())
    });
}

fn find_usage(contents: &Contents) -> Option<receiver::Name> {
    let mut names = contents.samples.keys();
    names.find(|name| name.iter().any(|(_, value)| value == "polymeter_cpu_usage_total")).cloned()
}

#[test]
fn only_selected_series_are_sent_with_the_configured_labels() {
    type Select = fn(&mut OutboundConfig);
    let selections: [(Select, bool); 4] = [
        (|config| config.metrics = vec!["memory.*".parse().unwrap()], false),
        (|config| config.jobs = vec!["4?".parse().unwrap()], true),
        (|config| config.jobs = Vec::new(), false),
        (|config| config.nodes = vec!["n2*".parse().unwrap()], false),
    ];
    for (select, is_sent) in selections {
        let mut fixture = Fixture::new(Receiver::start([], Reply::V1), &V1);
        select(&mut fixture.config);
        fixture.config.labels = vec![("site".to_owned(), "here".to_owned())];
        let mut sink = fixture.sink();
        accept(&mut sink, TestSession::new(1, &["a"]).frame(times(BEGIN_MS, 3)));
        if is_sent {
            let name = fixture.drive(&mut sink, find_usage);
            assert_eq!(name.last(), Some(&("site".to_owned(), "here".to_owned())));
        } else {
            drop(sink);
            assert_eq!(fixture.receiver.wait_for(|contents| Some(find_usage(contents))), None);
        }
    }
}
