//! The statements of PostgreSQL, row by row of the schema. Lists travel as arrays: one round trip each.

use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::SinkExt;
use polymeter_proto::period::Period;
use tokio_postgres::{Client, Error, Transaction};

use super::copy::{Timestamp, put_header, put_sample, put_trailer};
use super::{job_key, key_of, labels_json, stored_count, stored_us};
use crate::accepted::{Accepted, REFUSED, SeriesRecord};
use crate::limits;

pub(super) fn timestamp(time_us: i64) -> Timestamp {
    Timestamp(stored_us(time_us))
}

/// Gives their ids to those of `series` that are in the database.
pub(super) async fn find_series(client: &Client, series: &[Arc<SeriesRecord>]) -> Result<(), Error> {
    let positions: Vec<i32> = (0..).take(series.len()).collect();
    let (nodes, metrics, job_keys, labels) = identities(series);
    let found = client
        .query(
            // Row by row through the index: the planner would otherwise read and hash all series that there are.
            "SELECT wanted.position, known.series_id
             FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[], $5::text[]) AS wanted (position, node, metric, job_key, labels)
             CROSS JOIN LATERAL (
                 SELECT series_id FROM series
                 WHERE series.node = wanted.node AND series.metric = wanted.metric
                     AND coalesce(series.job_key, 0) = coalesce(wanted.job_key, 0)
                     AND md5(series.labels::text) = md5(wanted.labels::jsonb::text) LIMIT 1
             ) AS known",
            &[&positions, &nodes, &metrics, &job_keys, &labels],
        )
        .await?;
    for row in found {
        let position = usize::try_from(row.get::<_, i32>(0)).unwrap_or(usize::MAX);
        if let Some(series) = series.get(position) {
            series.id.get_or_init(|| row.get(1));
        }
    }
    Ok(())
}

type Identities<'a> = (Vec<&'a str>, Vec<&'a str>, Vec<Option<i64>>, Vec<String>);

fn identities(series: &[Arc<SeriesRecord>]) -> Identities<'_> {
    (
        series.iter().map(|series| series.node().as_str()).collect(),
        series.iter().map(|series| series.metric.name.as_str()).collect(),
        series.iter().map(|series| job_key(series)).collect(),
        series.iter().map(|series| labels_json(&series.labels)).collect(),
    )
}

pub(super) async fn insert_metrics(client: &Client, series: &[Arc<SeriesRecord>]) -> Result<(), Error> {
    let (names, units): (Vec<_>, Vec<_>) =
        series.iter().map(|series| (series.metric.name.as_str(), series.metric.unit.as_str())).unzip();
    let kinds: Vec<_> = series.iter().map(|series| series.metric.kind.as_str()).collect();
    client
        .execute(
            "INSERT INTO metric (metric, unit, kind)
             SELECT DISTINCT ON (metric) * FROM unnest($1::text[], $2::text[], $3::text[]) AS new (metric, unit, kind) ORDER BY metric
             ON CONFLICT DO NOTHING",
            &[&names, &units, &kinds],
        )
        .await?;
    Ok(())
}

pub(super) async fn insert_series(client: &Client, series: &[Arc<SeriesRecord>]) -> Result<(), Error> {
    let (nodes, metrics, job_keys, labels) = identities(series);
    let job_ids: Vec<_> =
        series.iter().map(|series| series.job.as_ref().map(|job| job.descriptor.job_id.as_str())).collect();
    client
        .execute(
            "INSERT INTO series (node, metric, job_key, job_id, labels)
             SELECT node, metric, job_key, job_id, labels::jsonb
             FROM unnest($1::text[], $2::text[], $3::int8[], $4::text[], $5::text[]) AS new (node, metric, job_key, job_id, labels)
             ON CONFLICT DO NOTHING",
            &[&nodes, &metrics, &job_keys, &job_ids, &labels],
        )
        .await?;
    Ok(())
}

pub(super) async fn copy_samples(transaction: &Transaction<'_>, frames: &[&Accepted]) -> Result<u64, Error> {
    let mut samples =
        frames.iter().flat_map(|frame| &frame.samples).flat_map(|samples| samples.iter()).peekable();
    if samples.peek().is_none() {
        return Ok(0);
    }
    let copy = transaction
        .copy_in::<_, Bytes>("COPY samples (time, series_id, value) FROM STDIN (FORMAT binary)")
        .await?;
    let mut copy = pin!(copy);
    let mut buffer = BytesMut::with_capacity(limits::COPY_BYTES * 2);
    put_header(&mut buffer);
    for (series, column) in samples {
        // All ids were given out before; a row without one would be refused by the table.
        let Some(id) = series.id.get().copied() else { continue };
        for (time_us, value) in column {
            put_sample(&mut buffer, stored_us(time_us), id, value);
        }
        if buffer.len() >= limits::COPY_BYTES {
            copy.feed(buffer.split().freeze()).await?;
            buffer.reserve(limits::COPY_BYTES * 2);
        }
    }
    put_trailer(&mut buffer);
    copy.send(buffer.freeze()).await?;
    copy.finish().await
}

/// One statement for each frame that has such: there are few, and a frame is bounded.
pub(super) async fn insert_quarantine(
    transaction: &Transaction<'_>,
    frames: &[&Accepted],
) -> Result<u64, Error> {
    let mut rows = 0;
    for frame in frames.iter().filter(|frame| !frame.quarantined.is_empty()) {
        let (mut times, mut ids, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (series, column) in frame.quarantined.iter().flat_map(|samples| samples.iter()) {
            for (time_us, value) in column {
                times.push(timestamp(time_us));
                ids.push(series.id.get().copied());
                values.push(value);
            }
        }
        rows += transaction
            .execute(
                "INSERT INTO samples_quarantine (time, series_id, value, received)
                 SELECT new.*, $4 FROM unnest($1::timestamptz[], $2::int8[], $3::float8[]) AS new (time, series_id, value)",
                &[&times, &ids, &values, &timestamp(frame.received_us)],
            )
            .await?;
    }
    Ok(rows)
}

pub(super) async fn insert_losses(transaction: &Transaction<'_>, frames: &[&Accepted]) -> Result<(), Error> {
    let losses: Vec<_> =
        frames.iter().flat_map(|frame| frame.losses.iter().map(move |loss| (frame, loss))).collect();
    if losses.is_empty() {
        return Ok(());
    }
    let times: Vec<_> = losses.iter().map(|(frame, _)| timestamp(frame.received_us)).collect();
    let nodes: Vec<_> = losses.iter().map(|(frame, _)| frame.session.descriptor.node.as_str()).collect();
    let sessions: Vec<_> = losses.iter().map(|(frame, _)| frame.session.id.to_string()).collect();
    let samples: Vec<_> = losses.iter().map(|(_, loss)| stored_count(loss.samples)).collect();
    let reasons: Vec<_> = losses.iter().map(|(_, loss)| loss.reason.as_str()).collect();
    let accounts = || losses.iter().map(|(_, loss)| loss.line.as_ref());
    let job_keys: Vec<_> =
        accounts().map(|account| account.and_then(|account| key_of(account.job.as_ref()))).collect();
    let sources: Vec<_> = accounts().map(|account| account.map(|account| account.source.as_str())).collect();
    let (first, last): (Vec<_>, Vec<_>) =
        losses.iter().map(|(_, loss)| (timestamp(loss.span_us.0), timestamp(loss.span_us.1))).unzip();
    transaction
        .execute(
            "INSERT INTO loss (time, node, session_id, samples, reason, first_time, last_time, job_key, source)
             SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::int8[], $5::text[], $6::timestamptz[], $7::timestamptz[],
                                  $8::int8[], $9::text[])",
            &[&times, &nodes, &sessions, &samples, &reasons, &first, &last, &job_keys, &sources],
        )
        .await?;
    Ok(())
}

pub(super) async fn insert_plan_changes(
    transaction: &Transaction<'_>,
    frames: &[&Accepted],
) -> Result<(), Error> {
    let of_frame = |frame| {
        let Accepted { session, plan_changes, .. }: &Accepted = frame;
        plan_changes.iter().map(move |(job, change)| (session.descriptor.node.as_str(), job.as_ref(), change))
    };
    let changes: Vec<_> = frames.iter().copied().flat_map(of_frame).collect();
    if changes.is_empty() {
        return Ok(());
    }
    let (times, until): (Vec<_>, Vec<_>) =
        changes.iter().map(|(.., change)| (timestamp(change.at_us), change.until_us.map(timestamp))).unzip();
    let (nodes, job_keys): (Vec<_>, Vec<_>) =
        changes.iter().map(|(node, job, _)| (*node, key_of(*job))).unzip();
    let job_ids: Vec<_> =
        changes.iter().map(|(_, job, _)| job.map(|job| job.descriptor.job_id.as_str())).collect();
    let (metrics, causes): (Vec<_>, Vec<_>) =
        changes.iter().map(|(.., change)| (change.metric.as_str(), change.cause.as_str())).unzip();
    let micros = |period: Option<Period>| period.map(|period| stored_count(period.as_micros()));
    let (old, new): (Vec<_>, Vec<_>) =
        changes.iter().map(|(.., change)| (micros(change.old), micros(change.new))).unzip();
    let actor: Vec<_> = changes.iter().map(|(.., change)| change.by.as_ref().map(|by| by.as_str())).collect();
    transaction
        .execute(
            "INSERT INTO plan_change (time, node, job_key, job_id, metric, old_period_us, new_period_us, cause, actor, until)
             SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::int8[], $4::text[], $5::text[], $6::int8[], $7::int8[], $8::text[],
                                  $9::text[], $10::timestamptz[])",
            &[&times, &nodes, &job_keys, &job_ids, &metrics, &old, &new, &causes, &actor, &until],
        )
        .await?;
    Ok(())
}

pub(super) async fn insert_marks(transaction: &Transaction<'_>, frames: &[&Accepted]) -> Result<(), Error> {
    let of_frame = |frame| {
        let Accepted { session, marks, .. }: &Accepted = frame;
        marks.iter().map(move |(job, mark)| (session.descriptor.node.as_str(), job.as_ref(), mark))
    };
    let marks: Vec<_> = frames.iter().copied().flat_map(of_frame).collect();
    if marks.is_empty() {
        return Ok(());
    }
    let (times, nodes): (Vec<_>, Vec<_>) =
        marks.iter().map(|(node, _, mark)| (timestamp(mark.at_us), *node)).unzip();
    let job_keys: Vec<_> = marks.iter().map(|(_, job, _)| key_of(*job)).collect();
    let job_ids: Vec<_> =
        marks.iter().map(|(_, job, _)| job.map(|job| job.descriptor.job_id.as_str())).collect();
    let (names, kinds): (Vec<_>, Vec<_>) =
        marks.iter().map(|(.., mark)| (mark.name.as_str(), mark.kind.as_str())).unzip();
    let actor: Vec<_> = marks.iter().map(|(.., mark)| mark.by.as_ref().map(|by| by.as_str())).collect();
    transaction
        .execute(
            "INSERT INTO mark (time, node, job_key, job_id, name, actor, detail)
             SELECT time, node, job_key, job_id, name, actor, jsonb_build_object('kind', kind)
             FROM unnest($1::timestamptz[], $2::text[], $3::int8[], $4::text[], $5::text[], $6::text[], $7::text[])
                  AS said (time, node, job_key, job_id, name, actor, kind)",
            &[&times, &nodes, &job_keys, &job_ids, &names, &actor, &kinds],
        )
        .await?;
    Ok(())
}

/// They stand among the changes of plan. One statement each: there are few.
pub(super) async fn insert_refused_requests(
    transaction: &Transaction<'_>,
    frames: &[&Accepted],
) -> Result<(), Error> {
    for (job, refused) in frames.iter().flat_map(|frame| &frame.refused_requests) {
        transaction
            .execute(
                "INSERT INTO plan_change (time, node, job_key, job_id, metric, new_period_us, cause, actor, reason)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                &[
                    &timestamp(refused.at_us),
                    &job.node().as_str(),
                    &key_of(Some(job)),
                    &job.descriptor.job_id.as_str(),
                    &refused.request.as_str(),
                    &refused.period.map(|period| stored_count(period.as_micros())),
                    &REFUSED,
                    &refused.by.as_ref().map(|user| user.as_str()),
                    &refused.reason.as_str(),
                ],
            )
            .await?;
    }
    Ok(())
}
