//! A connection to an SQLite file.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{CachedStatement, OpenFlags, params_from_iter};

use super::diagnosis::explain;
use super::files::{self, StoreFiles};
use super::migrations::migrate;
use super::silent_jobs;
use super::statement::{self, DIALECT};
use crate::accepted::{Accepted, SampleBlock};
use crate::backend::{Connection, Dialect};
use crate::error::DatabaseError;
use crate::row::Row;
use crate::value::{Batch, Column, Number, Value};
use crate::{OpenOptions, StoreError, StoreOrigin, limits};

#[derive(Debug)]
pub(super) struct SqliteConnection {
    pub(super) connection: rusqlite::Connection,
    /// Path of the file, as it was configured.
    path: PathBuf,
    /// State of the files at the end of the last transaction; none for a reader and for the maintenance.
    pub(super) files: Option<StoreFiles>,
}

impl SqliteConnection {
    /// Opens the store at `path` to write. A missing file is created if that is allowed.
    pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<(Self, StoreOrigin), StoreError> {
        let cannot_open = |source| explain(path, "open the store", source);
        let cannot_create =
            |error| StoreError::Unusable(format!("cannot create the store {}: {error}", path.display()));
        if options.may_create {
            files::create(path).map_err(cannot_create)?;
        } else if fs::metadata(path).is_err_and(|error| files::is_gone(&error)) {
            return Err(StoreError::Missing { path: path.to_owned() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = rusqlite::Connection::open_with_flags(path, flags).map_err(cannot_open)?;
        connection.busy_timeout(limits::SQLITE_BUSY).map_err(cannot_open)?;
        connection.set_prepared_statement_cache_capacity(limits::SQLITE_STATEMENTS);
        statement::add_functions(&connection).map_err(cannot_open)?;
        // Only the first statement on a new file has an effect: the space of deleted rows can be returned.
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL").map_err(cannot_open)?;
        let mode: String =
            connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0)).map_err(cannot_open)?;
        // An acknowledgement promises that the samples survive a power failure: FULL, one fsync per commit.
        connection
            .execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;")
            .map_err(cannot_open)?;
        let is_new = migrate(&mut connection, path, options)?;
        let resolved = connection.path().map_or_else(|| path.to_owned(), Into::into);
        let files = StoreFiles::of_open(path, &resolved, mode == "wal").map_err(cannot_create)?;
        let origin = StoreOrigin::new(files.database().into(), is_new);
        Ok((Self { connection, path: path.to_owned(), files: Some(files) }, origin))
    }

    /// Wraps a connection whose files are not checked: one that only reads, or maintains the store.
    pub(super) const fn of(connection: rusqlite::Connection, path: PathBuf) -> Self {
        Self { connection, path, files: None }
    }

    fn run(&mut self, statement: &str, parameters: &[Value<'_>]) -> rusqlite::Result<Vec<Row>> {
        let mut rows = Vec::new();
        read_rows(&mut self.connection.prepare_cached(statement)?, parameters, &mut |row| {
            rows.push(row);
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }
}

impl SqliteConnection {
    /// Returns the number of samples in the windows.
    fn insert_windows(&self, block: &SampleBlock) -> rusqlite::Result<u64> {
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO samples (time, series_id, value, count, min, max, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        for (series, rows) in block.rows() {
            let id = series.id.get();
            for (time_us, value, window) in rows {
                let window = window.map(|window| (Value::count(window.count), window));
                insert.execute((
                    Value::time(time_us),
                    id,
                    value,
                    window.as_ref().map(|(count, _)| count),
                    window.as_ref().map(|(_, window)| window.min),
                    window.as_ref().map(|(_, window)| window.max),
                    window.as_ref().map(|(_, window)| window.sum),
                ))?;
            }
        }
        Ok(block.samples())
    }
}

impl Connection for SqliteConnection {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn begin(&mut self) -> Result<(), DatabaseError> {
        Ok(self.connection.execute_batch("BEGIN IMMEDIATE")?)
    }

    fn commit(&mut self) -> Result<(), DatabaseError> {
        Ok(self.connection.execute_batch("COMMIT")?)
    }

    fn query(&mut self, statement: &str, parameters: &[Value<'_>]) -> Result<Vec<Row>, DatabaseError> {
        Ok(self.run(&statement::translate(statement), parameters)?)
    }

    fn read(
        &mut self,
        statement: &str,
        parameters: &[Value<'_>],
        each: &mut dyn FnMut(Row) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let prepared = self.connection.prepare_cached(&statement::translate(statement));
        let read = prepared.and_then(|mut prepared| read_rows(&mut prepared, parameters, each));
        read.map_err(|source| explain(&self.path, "read the store", source))
    }

    fn stream(
        &mut self,
        statement: &str,
        columns: &[Column],
        each: &mut dyn FnMut(&[Number]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let streamed = stream_rows(&self.connection, statement, columns, each);
        streamed.map_err(|source| explain(&self.path, "read the store", source))
    }

    fn execute(&mut self, statement: &str, parameters: &[Value<'_>]) -> Result<u64, DatabaseError> {
        let mut prepared = self.connection.prepare_cached(&statement::translate(statement))?;
        Ok(prepared.execute(params_from_iter(parameters))? as u64)
    }

    fn query_batch(&mut self, statement: &str, batch: &Batch<'_>) -> Result<Vec<Row>, DatabaseError> {
        let mut prepared = self.connection.prepare_cached(&statement::translate_batch(statement, batch))?;
        let mut rows = Vec::new();
        for parameters in batch.rows() {
            read_rows(&mut prepared, parameters, &mut |row| {
                rows.push(row);
                ControlFlow::Continue(())
            })?;
        }
        Ok(rows)
    }

    fn execute_batch(&mut self, statement: &str, batch: &Batch<'_>) -> Result<u64, DatabaseError> {
        let mut prepared = self.connection.prepare_cached(&statement::translate_batch(statement, batch))?;
        let mut changed = 0;
        for parameters in batch.rows() {
            changed += prepared.execute(params_from_iter(parameters))? as u64;
        }
        Ok(changed)
    }

    fn write_samples(&mut self, frames: &[&Accepted]) -> Result<u64, DatabaseError> {
        let mut insert = self
            .connection
            .prepare_cached("INSERT INTO samples (time, series_id, value) VALUES (?1, ?2, ?3)")?;
        let mut written = 0;
        let blocks = || frames.iter().flat_map(|frame| &frame.samples);
        for (series, column) in
            blocks().filter(|block| block.windows.is_none()).flat_map(|block| block.iter())
        {
            let id = series.id.get();
            for (time_us, value) in column {
                insert.execute((Value::time(time_us), id, value))?;
                written += 1;
            }
        }
        for block in blocks().filter(|block| block.windows.is_some()) {
            written += self.insert_windows(block)?;
        }
        Ok(written)
    }

    fn make_room(&mut self, _: &[Accepted]) -> Result<(), DatabaseError> {
        Ok(())
    }

    fn lock_job_keys(&mut self) -> Result<(), DatabaseError> {
        // A transaction locks the whole file.
        Ok(())
    }

    fn lock_requests(&mut self) -> Result<(), DatabaseError> {
        // A transaction locks the whole file.
        Ok(())
    }

    fn see_silent_as_ended(&mut self, cutoff_us: i64) -> Result<(), DatabaseError> {
        Ok(silent_jobs::see_as_ended(&self.connection, cutoff_us)?)
    }

    fn check(&mut self) -> Result<(), StoreError> {
        self.check_files()
    }

    fn check_committed(&mut self) -> Result<(), StoreError> {
        self.check_files()?;
        self.check_log_head()
    }
}

fn stream_rows(
    connection: &rusqlite::Connection,
    statement: &str,
    columns: &[Column],
    each: &mut dyn FnMut(&[Number]) -> ControlFlow<()>,
) -> rusqlite::Result<()> {
    let mut prepared = connection.prepare(&statement::translate(statement))?;
    let (mut rows, mut numbers) = (prepared.query(())?, Vec::with_capacity(columns.len()));
    while let Some(row) = rows.next()? {
        statement::read_numbers(row, columns, &mut numbers)?;
        if each(&numbers).is_break() {
            break;
        }
    }
    Ok(())
}

fn read_rows(
    prepared: &mut CachedStatement<'_>,
    parameters: &[Value<'_>],
    each: &mut dyn FnMut(Row) -> ControlFlow<()>,
) -> rusqlite::Result<()> {
    let names: Arc<[String]> = prepared.column_names().map(str::to_owned).collect();
    let mut found = prepared.query(params_from_iter(parameters))?;
    while let Some(row) = found.next()? {
        let fields = (0..names.len()).map(|column| statement::field(row, column));
        if each(Row::new(Arc::clone(&names), fields.collect::<rusqlite::Result<_>>()?)).is_break() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::backend::Connection;
    use crate::sqlite::new_store;

    /// SQLite must be compiled to leave out nulls at the end of a row: they would be four bytes, a fifth of it.
    #[test]
    fn a_sample_is_hardly_longer_for_the_columns_of_windows() {
        let (_directory, mut connection) = new_store();
        let connection: &mut dyn Connection = &mut *connection;
        let plain = "CREATE TABLE plain (time INTEGER NOT NULL, series_id INTEGER NOT NULL, value REAL)";
        connection.execute(plain, &[]).unwrap();
        for table in ["samples", "plain"] {
            let insert = format!(
                "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 5000)
                 INSERT INTO {table} (time, series_id, value) SELECT 1790000000000000000 + n * 1000000, n % 200, n / 7.0 FROM n"
            );
            connection.execute(&insert, &[]).unwrap();
        }
        let size = "SELECT payload FROM dbstat WHERE aggregate = true AND name = $1";
        let [samples, plain] =
            ["samples", "plain"].map(|table| connection.select_one::<i64>(size, &[table.into()]).unwrap());
        assert!(samples * 100 <= plain * 106, "{samples} bytes, and {plain} without the columns");
    }
}
