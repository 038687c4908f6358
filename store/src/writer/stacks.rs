//! Call stacks.

use std::collections::BTreeMap;

use super::progress::key_of;
use crate::accepted::{Accepted, StackRecord};
use crate::backend::Connection;
use crate::digest::digest_id;
use crate::error::DatabaseError;
use crate::value::{Batch, Column, ColumnType, Value};

const FUNCTION: [Column; 4] = [
    ("job_key", ColumnType::Integer),
    ("function_id", ColumnType::Integer),
    ("name", ColumnType::Text),
    ("module", ColumnType::Text),
];

const NODE: [Column; 4] = [
    ("job_key", ColumnType::Integer),
    ("stack_id", ColumnType::Integer),
    ("parent_id", ColumnType::Integer),
    ("function_id", ColumnType::Integer),
];

const INTERVAL: [Column; 12] = [
    ("job_key", ColumnType::Integer),
    ("time", ColumnType::Time),
    ("interval_id", ColumnType::Integer),
    ("node", ColumnType::Text),
    ("metric", ColumnType::Text),
    ("length_us", ColumnType::Integer),
    ("period_us", ColumnType::Integer),
    ("samples", ColumnType::Integer),
    ("lost", ColumnType::Integer),
    ("throttled", ColumnType::Integer),
    ("cut", ColumnType::Integer),
    ("unresolved", ColumnType::Integer),
];

const SAMPLE: [Column; 6] = [
    ("job_key", ColumnType::Integer),
    ("time", ColumnType::Time),
    ("interval_id", ColumnType::Integer),
    ("process", ColumnType::Integer),
    ("stack_id", ColumnType::Integer),
    ("count", ColumnType::Integer),
];

/// Records by the key of their job and their id.
type ById<'a, T> = BTreeMap<(i64, i64), &'a T>;

/// Inserts the functions and stacks of `frames` that are not in the store, in a transaction of its own: those
/// of frames that are not stored then are harmless. Connections insert in the order of the keys, and cannot
/// deadlock.
pub(super) fn announce(connection: &mut dyn Connection, frames: &[Accepted]) -> Result<(), DatabaseError> {
    let stacks = not_stored(frames);
    if stacks.is_empty() {
        return Ok(());
    }
    let functions: ById<'_, _> = stacks
        .iter()
        .map(|((job_key, _), stack)| ((*job_key, stack.function.id), &*stack.function))
        .collect();
    let functions = functions.into_iter().map(|((job_key, id), function)| {
        [job_key.into(), id.into(), function.name.as_deref().into(), function.module.as_deref().into()]
    });
    let nodes = stacks.iter().map(|((job_key, id), stack)| {
        let parent = stack.parent.as_ref().map(|parent| parent.id);
        [(*job_key).into(), (*id).into(), parent.into(), stack.function.id.into()]
    });
    connection.begin()?;
    connection.execute_batch(
        "INSERT INTO stack_function (job_key, function_id, name, module)
         SELECT job_key, function_id, name, module FROM {new} WHERE true ON CONFLICT DO NOTHING",
        &Batch::new(&FUNCTION, functions),
    )?;
    connection.execute_batch(
        "INSERT INTO stack_node (job_key, stack_id, parent_id, function_id)
         SELECT job_key, stack_id, parent_id, function_id FROM {new} WHERE true ON CONFLICT DO NOTHING",
        &Batch::new(&NODE, nodes),
    )?;
    connection.commit()?;
    stacks.values().for_each(|stack| stack.stored.set());
    Ok(())
}

/// Returns the stacks of `frames` that are not in the store, with their callers.
fn not_stored(frames: &[Accepted]) -> ById<'_, StackRecord> {
    let mut stacks = BTreeMap::new();
    for block in frames.iter().flat_map(|frame| &frame.stacks) {
        let Some(job_key) = key_of(Some(&block.job)) else { continue };
        for samples in &block.samples {
            let mut next = Some(&samples.stack);
            // The callers of a stored stack are stored.
            while let Some(stack) = next.filter(|stack| !stack.stored.get()) {
                if stacks.insert((job_key, stack.id), &**stack).is_some() {
                    break;
                }
                next = stack.parent.as_ref();
            }
        }
    }
    stacks
}

/// Inserts the intervals of `frames` with their samples.
pub(super) fn insert(connection: &mut dyn Connection, frames: &[&Accepted]) -> Result<(), DatabaseError> {
    let (mut intervals, mut samples) = (Vec::new(), Vec::new());
    for frame in frames {
        for (position, block) in (0_u64..).zip(&frame.stacks) {
            let Some(job_key) = key_of(Some(&block.job)) else { continue };
            let session = frame.session.id.to_string();
            let (sequence, position) = (frame.sequence.to_le_bytes(), position.to_le_bytes());
            let id = digest_id(&[Some(session.as_bytes()), Some(&sequence), Some(&position)]);
            let time_us = block.middle_us();
            intervals.push([
                job_key.into(),
                Value::time(time_us),
                id.into(),
                frame.session.descriptor.node.as_str().into(),
                block.metric.name.as_str().into(),
                Value::count(block.length_us()),
                Value::count(block.period_us),
                Value::count(block.count()),
                Value::count(block.lost),
                Value::count(block.throttled),
                Value::count(block.cut),
                Value::count(block.unresolved),
            ]);
            samples.extend(block.samples.iter().map(|samples| {
                [
                    job_key.into(),
                    Value::time(time_us),
                    id.into(),
                    samples.process.into(),
                    samples.stack.id.into(),
                    Value::count(samples.count),
                ]
            }));
        }
    }
    if intervals.is_empty() {
        return Ok(());
    }
    connection.execute_batch(
        "INSERT INTO stack_interval (job_key, time, interval_id, node, metric, length_us, period_us, samples, lost,
             throttled, cut, unresolved)
         SELECT job_key, time, interval_id, node, metric, length_us, period_us, samples, lost, throttled, cut,
             unresolved FROM {new}",
        &Batch::new(&INTERVAL, intervals),
    )?;
    if !samples.is_empty() {
        connection.execute_batch(
            "INSERT INTO stack_sample (job_key, time, interval_id, process, stack_id, count)
             SELECT job_key, time, interval_id, process, stack_id, count FROM {new}",
            &Batch::new(&SAMPLE, samples),
        )?;
    }
    Ok(())
}
