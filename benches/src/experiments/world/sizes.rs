//! The sizes of a store.

use std::error::Error;

use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say, to_f64};

/// Tables and indexes of PostgreSQL without those of samples and rollups, each with its size and number of
/// rows.
const TABLES: &str = "
    SELECT relname || '|' || pg_total_relation_size(oid) || '|' || greatest(reltuples, 0)::int8 FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND NOT relispartition
        AND relname NOT LIKE 'samples%' AND relname NOT IN ('rollup_10s', 'rollup_1min', 'rollup_1h') AND pg_total_relation_size(oid) > 0
    ORDER BY pg_total_relation_size(oid) DESC";

/// Tables of SQLite with their indexes, each with its size and number of rows, which is not known.
const SQLITE_TABLES: &str = "
    SELECT s.tbl_name || '|' || sum(d.pgsize) || '|0' FROM dbstat AS d JOIN sqlite_schema AS s ON s.name = d.name
    WHERE d.aggregate = true AND s.tbl_name NOT LIKE 'samples%' AND s.tbl_name NOT IN ('rollup_10s', 'rollup_1min', 'rollup_1h')
    GROUP BY s.tbl_name ORDER BY sum(d.pgsize) DESC";

/// Bytes of the samples with their indexes in SQLite.
const SQLITE_SAMPLES: &str = "
    SELECT sum(d.pgsize) FROM dbstat AS d JOIN sqlite_schema AS s ON s.name = d.name
    WHERE d.aggregate = true AND s.tbl_name = 'samples'";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sizes {
    pub(crate) samples: u64,
    pub(crate) per_sample: f64,
    /// Bytes of all other tables for each job and node.
    pub(crate) per_job_node: f64,
}

/// Prints the sizes of the tables, and returns the sums.
pub(crate) fn measure(store: &Store) -> Result<Sizes, Box<dyn Error>> {
    let samples = store.samples()?;
    let job_nodes: u64 = store.ask("SELECT count(*) FROM job_node")?.parse()?;
    let (bytes, tables) = if store.kind() == Kind::Sqlite {
        (store.ask(SQLITE_SAMPLES)?.parse()?, store.lines(SQLITE_TABLES)?)
    } else {
        store.ask("ANALYZE")?;
        (store.bytes()?, store.lines(TABLES)?)
    };
    let mut metadata = 0;
    let mut rows = Vec::new();
    for line in tables {
        let [table, bytes, count] = line.splitn(3, '|').collect::<Vec<_>>()[..] else { continue };
        let (bytes, count): (u64, u64) = (bytes.parse()?, count.parse()?);
        metadata += bytes;
        let per_row =
            if count > 0 { format!("{:.0}", to_f64(bytes) / to_f64(count)) } else { "-".to_owned() };
        let per_job_node = format!("{:.0}", to_f64(bytes) / to_f64(job_nodes.max(1)));
        rows.push(vec![table.to_owned(), bytes.to_string(), count.to_string(), per_row, per_job_node]);
    }
    let sizes = Sizes {
        samples,
        per_sample: to_f64(bytes) / to_f64(samples.max(1)),
        per_job_node: to_f64(metadata) / to_f64(job_nodes.max(1)),
    };
    say("");
    table::table(
        &["table", "bytes with indexes", "rows, estimated", "bytes per row", "per job and node"],
        &rows,
    );
    say("");
    say(&format!(
        "{samples} samples of {job_nodes} jobs and nodes; {:.2} bytes per sample, {:.0} bytes of metadata per job and node",
        sizes.per_sample, sizes.per_job_node
    ));
    Ok(sizes)
}
