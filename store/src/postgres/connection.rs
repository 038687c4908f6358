//! A connection to PostgreSQL.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::pin::pin;

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, TryStreamExt};
use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::copy::{CopyReader, put_header, put_sample, put_trailer, put_window};
use super::sample_table::SampleTable;
use super::server::JOB_LOCK;
use super::slow_statements::{Watched, wait};
use super::statement::{self, CITUS_DIALECT, CONTINUOUS_DIALECT, DIALECT};
use super::{citus, partitions, rollup_tables, table_detection};
use crate::accepted::{Accepted, SampleBlock};
use crate::backend::{Connection, Dialect};
use crate::bounds::stored_us;
use crate::digest::node_key;
use crate::error::{Context, DatabaseError};
use crate::row::Row;
use crate::value::{Batch, Column, Number, Value};
use crate::{StoreError, limits};

/// Begins a transaction in which rows are found through indexes. A planner without current statistics, or
/// with a small table, otherwise reads whole tables, and a burst of new jobs makes them large before the next
/// analysis.
const BEGIN: &str = "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

/// Connection to PostgreSQL, with its event loop.
#[derive(Debug)]
pub(super) struct PostgresConnection {
    runtime: Runtime,
    client: Client,
    /// Logs statements that are not answered for long; none if they may take long.
    watched: Option<Watched>,
    table: Option<SampleTable>,
    dialect: &'static Dialect,
    copy: Option<Statement>,
    /// Days, counted from the epoch, whose partitions exist.
    days: BTreeSet<i64>,
    /// True if the collector computes the rollups itself, so that writers record late samples; none if that
    /// is not known yet.
    has_rollup_tables: Option<bool>,
}

impl PostgresConnection {
    pub(super) const fn new(runtime: Runtime, client: Client, table: Option<SampleTable>) -> Self {
        Self {
            runtime,
            client,
            watched: None,
            table,
            dialect: &DIALECT,
            copy: None,
            days: BTreeSet::new(),
            has_rollup_tables: None,
        }
    }

    /// Lets the log tell what statements wait for.
    pub(super) fn watched(self, watched: Watched) -> Self {
        Self { watched: Some(watched), ..self }
    }

    /// Chooses the statements that read rollups by their form.
    pub(super) fn detect_rollups(&mut self) -> Result<(), DatabaseError> {
        if !rollup_tables::exist(self)? {
            self.dialect = &CONTINUOUS_DIALECT;
        } else if citus::has_functions(self)? {
            self.dialect = &CITUS_DIALECT;
        }
        Ok(())
    }

    fn run(&self, statement: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, DatabaseError> {
        let answer = self.client.query(statement, parameters);
        fields(&self.runtime.block_on(wait(self.watched.as_ref(), statement, answer))?)
    }

    fn change(&self, statement: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<u64, DatabaseError> {
        let answer = self.client.execute(statement, parameters);
        self.runtime.block_on(wait(self.watched.as_ref(), statement, answer))
    }
}

impl Connection for PostgresConnection {
    fn dialect(&self) -> &'static Dialect {
        self.dialect
    }

    fn begin(&mut self) -> Result<(), DatabaseError> {
        Ok(self.runtime.block_on(self.client.batch_execute(BEGIN))?)
    }

    fn commit(&mut self) -> Result<(), DatabaseError> {
        let answer = self.client.batch_execute("COMMIT");
        self.runtime.block_on(wait(self.watched.as_ref(), "COMMIT", answer))
    }

    fn query(&mut self, statement: &str, parameters: &[Value<'_>]) -> Result<Vec<Row>, DatabaseError> {
        self.run(&DIALECT.fill(statement), &statement::parameters(parameters))
    }

    fn read(
        &mut self,
        statement: &str,
        parameters: &[Value<'_>],
        each: &mut dyn FnMut(Row) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let read = async {
            let statement = DIALECT.fill(statement);
            let mut rows = pin!(self.client.query_raw(&statement, parameters).await?);
            let mut names = None;
            while let Some(row) = rows.try_next().await? {
                if each(statement::row(&row, &mut names)?).is_break() {
                    break;
                }
            }
            Ok::<_, DatabaseError>(())
        };
        self.runtime.block_on(read).context("read the store")
    }

    fn stream(
        &mut self,
        statement: &str,
        columns: &[Column],
        each: &mut dyn FnMut(&[Number]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        // A row of a COPY costs less than one of a query, and there is no statement to prepare.
        let copy = format!("COPY ({}) TO STDOUT (FORMAT binary)", DIALECT.fill(statement));
        let read = async {
            let mut stream = pin!(self.client.copy_out(&copy).await?);
            let mut reader = CopyReader::new(columns);
            while let Some(bytes) = stream.try_next().await? {
                reader.append(&bytes);
                while let Some(row) = reader.next_row()? {
                    if each(row).is_break() {
                        return Ok(());
                    }
                }
            }
            Ok::<_, DatabaseError>(())
        };
        self.runtime.block_on(read).context("read the store")
    }

    fn execute(&mut self, statement: &str, parameters: &[Value<'_>]) -> Result<u64, DatabaseError> {
        self.change(&DIALECT.fill(statement), &statement::parameters(parameters))
    }

    fn query_batch(&mut self, statement: &str, batch: &Batch<'_>) -> Result<Vec<Row>, DatabaseError> {
        let columns = statement::columns(batch);
        let (statement, arrays) = (statement::expand(statement, batch), statement::arrays(batch, &columns));
        let answer = self.client.query_typed(&statement, &arrays);
        fields(&self.runtime.block_on(wait(self.watched.as_ref(), &statement, answer))?)
    }

    fn execute_batch(&mut self, statement: &str, batch: &Batch<'_>) -> Result<u64, DatabaseError> {
        let columns = statement::columns(batch);
        let (statement, arrays) = (statement::expand(statement, batch), statement::arrays(batch, &columns));
        let answer = self.client.execute_typed(&statement, &arrays);
        self.runtime.block_on(wait(self.watched.as_ref(), &statement, answer))
    }

    fn write_samples(&mut self, frames: &[&Accepted]) -> Result<u64, DatabaseError> {
        let has_rollup_tables = match self.has_rollup_tables {
            Some(known) => known,
            None => rollup_tables::exist(self)?,
        };
        self.has_rollup_tables = Some(has_rollup_tables);
        if has_rollup_tables {
            rollup_tables::record_late(self, frames)?;
        }
        let has_keys = self.table == Some(SampleTable::Distributed);
        let answer = copy_samples(&self.client, &mut self.copy, frames, has_keys);
        let samples = self.runtime.block_on(wait(self.watched.as_ref(), "COPY samples", answer))?;
        if frames.iter().flat_map(|frame| &frame.samples).all(|block| block.windows.is_none()) {
            return Ok(samples);
        }
        let answer = copy_windows(&self.client, frames, has_keys);
        Ok(samples + self.runtime.block_on(wait(self.watched.as_ref(), "COPY samples", answer))?)
    }

    fn make_room(&mut self, frames: &[Accepted]) -> Result<(), DatabaseError> {
        if !matches!(self.table, Some(SampleTable::Partitions | SampleTable::Distributed)) {
            return Ok(());
        }
        let answer = partitions::create(&mut self.client, frames, &mut self.days);
        self.runtime.block_on(wait(self.watched.as_ref(), "the creation of partitions", answer))
    }

    fn lock_job_keys(&mut self) -> Result<(), DatabaseError> {
        self.change("SELECT pg_advisory_xact_lock($1)", &[&JOB_LOCK])?;
        Ok(())
    }

    fn lock_requests(&mut self) -> Result<(), DatabaseError> {
        self.change("LOCK TABLE control_request IN SHARE ROW EXCLUSIVE MODE", &[])?;
        Ok(())
    }

    fn see_silent_as_ended(&mut self, _: i64) -> Result<(), DatabaseError> {
        // A collector ends them.
        Ok(())
    }

    fn check(&mut self) -> Result<(), StoreError> {
        if self.table.is_some() {
            // The server guarantees the durability of commits.
            return Ok(());
        }
        // A table appears empty if the server does not load the extension that has its rows.
        self.runtime.block_on(table_detection::detect(&self.client)).map(drop)
    }

    fn check_committed(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn fields(rows: &[tokio_postgres::Row]) -> Result<Vec<Row>, DatabaseError> {
    let mut names = None;
    rows.iter().map(|row| statement::row(row, &mut names)).collect()
}

/// Copies the samples of `frames` in PostgreSQL's binary format, in the order of their series and times:
/// direct compression sorts them, which is a quarter of its work if they are in the order of arrival, and
/// little if they are sorted. With `has_keys` the table has the keys of their nodes.
async fn copy_samples(
    client: &Client,
    statement: &mut Option<Statement>,
    frames: &[&Accepted],
    has_keys: bool,
) -> Result<u64, tokio_postgres::Error> {
    const COPY: &str = "COPY samples (time, series_id, value) FROM STDIN (FORMAT binary)";
    const COPY_WITH_KEYS: &str = "COPY samples (time, series_id, value, node_key) FROM STDIN (FORMAT binary)";
    // All ids were assigned before; the table would reject a row without one.
    let blocks = frames.iter().flat_map(|frame| &frame.samples).filter(|block| block.windows.is_none());
    let columns = blocks.flat_map(|block| {
        let begin_us = block.times_us.first().copied();
        block.iter().filter_map(move |(series, column)| {
            let key = has_keys.then(|| node_key(series.stored_node().as_str()));
            Some((series.id.get()?, begin_us, key, column))
        })
    });
    let mut columns: Vec<_> = columns.collect();
    if columns.is_empty() {
        return Ok(0);
    }
    columns.sort_by_key(|(id, begin_us, ..)| (*id, *begin_us));
    let statement = match statement {
        Some(statement) => statement,
        None => statement.insert(client.prepare(if has_keys { COPY_WITH_KEYS } else { COPY }).await?),
    };
    let mut copy = pin!(client.copy_in::<_, Bytes>(statement).await?);
    let mut buffer = BytesMut::with_capacity(limits::COPY_BYTES * 2);
    put_header(&mut buffer);
    for (id, _, key, column) in columns {
        for (time_us, value) in column {
            put_sample(&mut buffer, stored_us(time_us), id, value, key);
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

/// Copies the windows of `frames`, as [`copy_samples`] does the samples. They are few. Returns the number of
/// samples that they had.
async fn copy_windows(
    client: &Client,
    frames: &[&Accepted],
    has_keys: bool,
) -> Result<u64, tokio_postgres::Error> {
    let blocks = || frames.iter().flat_map(|frame| &frame.samples).filter(|block| block.windows.is_some());
    let key = if has_keys { ", node_key" } else { "" };
    let statement = format!(
        "COPY samples (time, series_id, value, count, min, max, sum{key}) FROM STDIN (FORMAT binary)"
    );
    let mut rows: Vec<_> = blocks()
        .flat_map(|block| block.rows())
        .filter_map(|(series, rows)| Some((series.id.get()?, series, rows)))
        .flat_map(|(id, series, rows)| {
            rows.filter_map(move |(time_us, value, window)| {
                let key = has_keys.then(|| node_key(series.stored_node().as_str()));
                Some(((id, stored_us(time_us)), value, window?, key))
            })
        })
        .collect();
    rows.sort_by_key(|(place, ..)| *place);
    let mut copy = pin!(client.copy_in::<_, Bytes>(&statement).await?);
    let mut buffer = BytesMut::new();
    put_header(&mut buffer);
    for ((id, time_us), value, window, key) in rows {
        put_window(&mut buffer, (time_us, id, value), &window, key);
        if buffer.len() >= limits::COPY_BYTES {
            copy.feed(buffer.split().freeze()).await?;
        }
    }
    put_trailer(&mut buffer);
    copy.send(buffer.freeze()).await?;
    copy.finish().await?;
    Ok(blocks().map(SampleBlock::samples).sum())
}
