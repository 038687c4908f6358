//! Copy of a whole store into an empty one, also of another kind, in one transaction: the target has
//! everything or nothing.
//!
//! Retention removes samples and leaves their rollups. Of the time before that, rollups are copied; those of
//! later times the target computes itself from the samples.

mod tables;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use self::tables::{LEDGER_LINE, QUARANTINE, ROLLUPS, RollupTable, SAMPLES, TABLES, Table, is_optional};
use crate::backend::Connection;
use crate::error::{Context, DatabaseError};
use crate::labels::{labels_json, parse_labels};
use crate::reader::Reader;
use crate::row::{Row, TimeUs};
use crate::value::{Batch, Column, ColumnType, Number, Value};
use crate::{OpenOptions, StoreError, StoreUrl};

const ACTION: &str = "copy the store";

const CHUNK_ROWS: usize = 20_000;

const HOUR_US: i64 = 3_600_000_000;

const DAY_US: i64 = 86_400_000_000;

/// Numbers of a copy that were compared in both stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Each table with its number of rows.
    pub tables: Vec<(&'static str, u64)>,
    /// Samples that are stored by the ledger. Retention, and samples in quarantine, make a difference to the
    /// rows of `samples`.
    pub ledger_stored: i64,
    /// Those of them that are in call stacks, and have no rows in `samples`.
    pub in_call_stacks: i64,
    /// Form of the target, for messages.
    pub target: String,
}

/// Copies the store `from` into the empty store `to`, whose schema is made if it has none. Leaves out tokens
/// of users, requests to agents and the names of managers. `progress` gets a table and the number of its rows
/// that were written so far.
///
/// Leaves `to` empty if one of the stores fails, or if a count differs in the end, since something else wrote
/// to `to`.
pub fn copy(
    from: &StoreUrl,
    to: &StoreUrl,
    progress: &mut dyn FnMut(&'static str, u64),
) -> Result<Copied, StoreError> {
    drop(Reader::open(from)?);
    let mut source = from.open_to_read()?.connection;
    // All is read as it is now.
    let snapshot = if from.file().is_some() { "BEGIN" } else { "BEGIN ISOLATION LEVEL REPEATABLE READ" };
    source.execute(snapshot, &[]).context(ACTION)?;
    let opened = to.open(&OpenOptions { may_create: true, ..OpenOptions::default() })?;
    let mut target = opened.connection;
    check_empty(&mut *target)?;
    let (is_file, mode) = (to.file().is_some(), opened.write_mode.name);
    if mode.starts_with("Citus") {
        return Err(unusable(
            "it is distributed by Citus; copy into a database without Citus, and let the collector distribute it with `citus = \"require\"`",
        ));
    }
    let cut_us = removed_before(&mut *source)?;
    if cut_us.is_some() && mode.starts_with("TimescaleDB") {
        return Err(unusable(
            "retention has removed samples of the source, whose rollups TimescaleDB can only compute from samples; copy into a database without TimescaleDB",
        ));
    }
    target.begin().context(ACTION)?;
    let mut copying = Copying {
        source,
        target,
        from_file: from.file().is_some(),
        is_file,
        days: BTreeSet::new(),
        progress,
        tables: Vec::new(),
    };
    for table in TABLES {
        copying.table(table)?;
    }
    copying.samples(cut_us)?;
    copying.compare()?;
    let Copying { mut target, tables, .. } = copying;
    let ledger_stored = stored(&mut *target)?;
    let in_call_stacks = "SELECT CAST(coalesce(sum(samples), 0) AS bigint) FROM stack_interval";
    let in_call_stacks = target.select_one(in_call_stacks, &[]).context(ACTION)?;
    target.commit().context(ACTION)?;
    target.check_committed()?;
    Ok(Copied { tables, ledger_stored, in_call_stacks, target: mode.to_owned() })
}

fn unusable(cause: &str) -> StoreError {
    StoreError::Unusable(format!("cannot copy into the store: {cause}"))
}

fn check_empty(target: &mut dyn Connection) -> Result<(), StoreError> {
    for table in ["node", "session", "job", "series_block", "samples", "notice_opt_out"] {
        let count = format!("SELECT count(*) FROM (SELECT 1 AS one FROM {table} LIMIT 1) AS first_row");
        let count: i64 = target.select_one(&count, &[]).context(ACTION)?;
        if count > 0 {
            return Err(unusable("it is not empty; name an empty database, or a file that does not exist"));
        }
    }
    Ok(())
}

/// Returns a time before which samples may be missing, since retention removed some; none if it did not.
fn removed_before(source: &mut dyn Connection) -> Result<Option<i64>, StoreError> {
    let select = "SELECT dropped_before FROM retention WHERE relation = 'samples'";
    let dropped: Vec<TimeUs<Option<i64>>> = source.select(select, &[]).context(ACTION)?;
    // A whole hour, with which intervals of each width begin.
    let whole =
        |TimeUs(time_us): TimeUs<Option<i64>>| Some(time_us?.div_euclid(HOUR_US).saturating_add(1) * HOUR_US);
    Ok(dropped.into_iter().next().and_then(whole))
}

fn stored(connection: &mut dyn Connection) -> Result<i64, StoreError> {
    let sum = "SELECT CAST(coalesce(sum(stored), 0) AS bigint) FROM ledger_balance";
    connection.select_one(sum, &[]).context(ACTION)
}

struct Copying<'a> {
    source: Box<dyn Connection>,
    target: Box<dyn Connection>,
    from_file: bool,
    is_file: bool,
    /// Days, counted from the epoch, whose partitions exist in the target.
    days: BTreeSet<i64>,
    progress: &'a mut dyn FnMut(&'static str, u64),
    tables: Vec<(&'static str, u64)>,
}

impl Copying<'_> {
    fn table(&mut self, table: &Table) -> Result<(), StoreError> {
        // These have rows in a new store.
        if ["retention", "series_counter"].contains(&table.name) {
            self.target.execute(&format!("DELETE FROM {}", table.name), &[]).context(ACTION)?;
        }
        let names = names(table.columns);
        let select = if table.name == LEDGER_LINE && !self.from_file {
            let of_line = names.replace("session_key", "line.session_key");
            let counted =
                "nullif(coalesce(line.stored, 0) + coalesce((pending ->> ledger_id::text)::int8, 0), 0)";
            let of_line = of_line.replace(" stored,", &format!(" {counted} AS stored,"));
            format!("SELECT {of_line} FROM ledger_line AS line JOIN session USING (session_key)")
        } else {
            format!("SELECT {} FROM {}", read_names(table.columns), table.name)
        };
        let is_file = self.is_file;
        let Self { source, target, progress, .. } = self;
        let mut writing = Writing::new(&mut **target, table, is_file);
        let mut failed = None;
        source.read(
            &select,
            &[],
            &mut |row| match writing.add(values(row, table.columns), &mut **progress) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            },
        )?;
        failed.map_or_else(|| writing.flush(&mut **progress), Err).context(ACTION)?;
        let written = writing.written;
        self.tables.push((table.name, written));
        if table.has_identity && !is_file {
            let (table, (key, _)) =
                (table.name, table.columns.first().copied().unwrap_or(("", ColumnType::Integer)));
            let next = format!(
                "SELECT setval(pg_get_serial_sequence('{table}', '{key}'), coalesce(max({key}), 1), max({key}) IS NOT NULL) FROM {table}"
            );
            self.target.execute(&next, &[]).context(ACTION)?;
        }
        Ok(())
    }

    /// Copies the samples, and the rollups of times whose samples were removed. Those rollups come first,
    /// since a file adds samples to its rollups in the order of their rows.
    fn samples(&mut self, cut_us: Option<i64>) -> Result<(), StoreError> {
        let constant = self.source.dialect().time;
        let mut written = 0;
        if let Some(cut_us) = cut_us {
            let cut = constant(cut_us);
            written += self.numbers(&SAMPLES, "samples", &format!("WHERE time < {cut}"), None)?;
            for rollup in &ROLLUPS {
                let columns = rollup.columns(self.is_file);
                let table = Table { name: rollup.name, columns, has_identity: false };
                let rows = self.numbers(&table, rollup.view, &format!("WHERE time < {cut}"), Some(rollup))?;
                self.tables.push((rollup.name, rows));
            }
            let state = if self.is_file {
                "UPDATE rollup SET samples_rowid = (SELECT coalesce(max(rowid), 0) FROM samples)"
            } else {
                "UPDATE rollup SET claimed_before = $1, computed_before = $1"
            };
            let cut = [Value::Time(cut_us)];
            self.target.execute(state, if self.is_file { &[] } else { &cut }).context(ACTION)?;
            let last = "UPDATE rollup SET final_before =
                (SELECT dropped_before FROM retention WHERE retention.relation =
                     CASE rollup.relation WHEN 'samples_10s' THEN 'samples' WHEN 'samples_1min' THEN 'samples_10s' ELSE 'samples_1min' END)";
            self.target.execute(last, &[]).context(ACTION)?;
            written += self.numbers(
                &SAMPLES,
                "samples",
                &format!("WHERE time >= {cut}", cut = constant(cut_us)),
                None,
            )?;
        } else {
            written += self.numbers(&SAMPLES, "samples", "", None)?;
        }
        self.tables.push((SAMPLES.name, written));
        let quarantined = self.numbers(&QUARANTINE, QUARANTINE.name, "", None)?;
        self.tables.push((QUARANTINE.name, quarantined));
        Ok(())
    }

    /// Copies rows of numbers and times of a relation, and makes the partitions that they need.
    fn numbers(
        &mut self,
        table: &Table,
        relation: &str,
        condition: &str,
        of: Option<&RollupTable>,
    ) -> Result<u64, StoreError> {
        let is_file = self.is_file;
        let read = of.map_or(table.columns, |rollup| rollup.columns(false));
        let columns: Vec<_> = read.iter().map(|(name, kind)| number_name(table, name, *kind)).collect();
        let select = format!("SELECT {} FROM {relation} {condition}", columns.join(", "));
        let Self { source, target, progress, days, .. } = self;
        let mut writing = Writing::new(&mut **target, table, is_file);
        let mut failed = None;
        source.stream(&select, read, &mut |numbers| {
            let mut row: Vec<Value<'static>> = numbers.iter().zip(read).map(|of| number(table, of)).collect();
            let time_us = numbers.iter().zip(read).find(|(_, (name, _))| *name == "time");
            let time_us = time_us.map_or(0, |(number, _)| number.integer().div_euclid(1000));
            if let Some(rollup) = of.filter(|_| is_file) {
                row.extend([Value::Time(time_us), Value::Time(time_us + rollup.width_us - 1)]);
            }
            let day = time_us.div_euclid(DAY_US);
            let made = if is_file || table.name == QUARANTINE.name || !days.insert(day) {
                Ok(())
            } else {
                writing.make_room(day)
            };
            match made.and_then(|()| writing.add(Ok(row), &mut **progress)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failed.map_or_else(|| writing.flush(&mut **progress), Err).context(ACTION)?;
        Ok(writing.written)
    }

    /// Compares the number of rows in both stores, and the sums of the ledger.
    fn compare(&mut self) -> Result<(), StoreError> {
        for (table, written) in &self.tables {
            let count = format!("SELECT count(*) FROM {table}");
            let found: i64 = self.target.select_one(&count, &[]).context(ACTION)?;
            let is_rollup = ROLLUPS.iter().any(|rollup| rollup.name == *table);
            let expected: i64 = match is_rollup {
                true => i64::try_from(*written).unwrap_or(i64::MAX),
                false => self.source.select_one(&count, &[]).context(ACTION)?,
            };
            if found != expected || u64::try_from(found) != Ok(*written) {
                return Err(differs(&format!("the table {table}"), expected, found));
            }
        }
        let (source, target) = (stored(&mut *self.source)?, stored(&mut *self.target)?);
        if source != target {
            return Err(differs("the ledger", source, target));
        }
        Ok(())
    }
}

fn differs(what: &str, source: i64, target: i64) -> StoreError {
    unusable(&format!(
        "{what} has {source} in the source and {target} in the copy, since something else writes to one of \
         them; stop its collector"
    ))
}

struct Writing<'a> {
    target: &'a mut dyn Connection,
    name: &'static str,
    columns: &'static [Column],
    statement: String,
    is_file: bool,
    rows: Vec<Vec<Value<'static>>>,
    written: u64,
}

impl<'a> Writing<'a> {
    fn new(target: &'a mut dyn Connection, table: &Table, is_file: bool) -> Self {
        let names = names(table.columns);
        let with_keys = if table.has_identity && !is_file { " OVERRIDING SYSTEM VALUE" } else { "" };
        let statement =
            format!("INSERT INTO {} ({names}){with_keys} SELECT {names} FROM {{new}}", table.name);
        let (name, columns) = (table.name, table.columns);
        Self { target, name, columns, statement, is_file, rows: Vec::new(), written: 0 }
    }

    fn add(
        &mut self,
        row: Result<Vec<Value<'static>>, DatabaseError>,
        progress: &mut dyn FnMut(&'static str, u64),
    ) -> Result<(), DatabaseError> {
        let mut row = row?;
        if self.is_file {
            // A file compares labels as text, and has JSON without spaces.
            for (value, (name, kind)) in row.iter_mut().zip(self.columns) {
                let Value::Text(text) = &*value else { continue };
                if *name == "labels"
                    && let Some(labels) = parse_labels(text)
                {
                    *value = labels_json(&labels).into();
                } else if *kind == ColumnType::Json
                    && let Ok(json) = serde_json::from_str::<serde_json::Value>(text)
                {
                    *value = json.to_string().into();
                }
            }
        }
        self.rows.push(row);
        if self.rows.len() < CHUNK_ROWS { Ok(()) } else { self.flush(progress) }
    }

    fn flush(&mut self, progress: &mut dyn FnMut(&'static str, u64)) -> Result<(), DatabaseError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let batch = Batch::of_rows(self.columns, std::mem::take(&mut self.rows));
        self.written += self.target.execute_batch(&self.statement, &batch)?;
        progress(self.name, self.written);
        Ok(())
    }

    /// Makes the partitions of a day, counted from the epoch, where the database has some.
    fn make_room(&mut self, day: i64) -> Result<(), DatabaseError> {
        let instant = format!("to_timestamp({})", day * DAY_US / 1_000_000);
        for (function, argument) in [
            ("polymeter_create_partition", format!("({instant} AT TIME ZONE 'UTC')::date")),
            ("polymeter_create_rollup_partitions", instant),
        ] {
            let exists = "SELECT to_regproc(CAST($1 AS text)) IS NOT NULL";
            if self.target.select_one(exists, &[function.into()])? {
                self.target.execute(&format!("SELECT {function}({argument})"), &[])?;
            }
        }
        Ok(())
    }
}

/// Returns the columns of a `SELECT`, JSON as text.
fn read_names(columns: &[Column]) -> String {
    let names = columns.iter().map(|(name, kind)| {
        if *kind == ColumnType::Json { format!("CAST({name} AS text)") } else { (*name).to_owned() }
    });
    names.collect::<Vec<_>>().join(", ")
}

fn names(columns: &[Column]) -> String {
    columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Returns a column of a `SELECT` of numbers, in which no integer is null.
fn number_name(table: &Table, name: &str, kind: ColumnType) -> String {
    if kind == ColumnType::Integer && is_optional(table, name) {
        format!("coalesce({name}, 0)")
    } else {
        name.to_owned()
    }
}

fn number(table: &Table, (number, (name, kind)): (&Number, &Column)) -> Value<'static> {
    let is_null = if *kind == ColumnType::Real { number.real().is_nan() } else { number.integer() == 0 };
    if is_null && is_optional(table, name) {
        return Value::Null;
    }
    match kind {
        ColumnType::Time => Value::Time(number.integer().div_euclid(1000)),
        ColumnType::Real => Value::Real(number.real()),
        ColumnType::Integer | ColumnType::Bool | ColumnType::Text | ColumnType::Json => {
            Value::Integer(number.integer())
        }
    }
}

/// Returns the fields of a row as values of the types of `columns`.
fn values(mut row: Row, columns: &[Column]) -> Result<Vec<Value<'static>>, DatabaseError> {
    let mut values = Vec::with_capacity(columns.len());
    for (_, kind) in columns {
        values.push(match kind {
            ColumnType::Integer => row.get::<Option<i64>>()?.into(),
            ColumnType::Bool => row.get::<Option<bool>>()?.into(),
            ColumnType::Time => row.get::<TimeUs<Option<i64>>>()?.0.map_or(Value::Null, Value::Time),
            ColumnType::Real => row.get::<Option<f64>>()?.into(),
            ColumnType::Text | ColumnType::Json => row.get::<Option<String>>()?.into(),
        });
    }
    Ok(values)
}
