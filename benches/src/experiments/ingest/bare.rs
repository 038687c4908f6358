//! The bare copy, a lower bound of the cost of storing: the same rows without a collector, copied by
//! PostgreSQL's own client, or inserted with a prepared statement of SQLite.

use std::error::Error;
use std::fs;
use std::process::{Child, Stdio};

use polymeter_benches::clock::now_ns;
use polymeter_benches::collector::Collector;
use polymeter_benches::delivery::Taken;
use polymeter_benches::mock::MockAgent;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::to_f64;
use polymeter_proto::series::Number;
use polymeter_proto::wire::frame::Frame;

/// The collector's default.
const TRANSACTION_ROWS: usize = 50_000;

/// Range of series ids of one agent, larger than its number of series.
const SERIES_PER_AGENT: usize = 1_000;

/// Header and trailer of a binary COPY, and its epoch: PostgreSQL's manual, "COPY".
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const TRAILER: [u8; 2] = [0xff, 0xff];
const POSTGRES_EPOCH_US: i64 = 946_684_800 * 1_000_000;

/// Time in microseconds since the epoch, series, and value.
type Row = (i64, i64, f64);

/// Rows of the table `samples` in the order in which a collector writes them, grouped into transactions.
pub(crate) struct Rows {
    transactions: Vec<Vec<Row>>,
}

impl Rows {
    /// Decodes the rows of all unacknowledged frames of these agents.
    pub(crate) fn of(agents: &[MockAgent]) -> Result<Self, Box<dyn Error>> {
        // One frame of each agent in turn, the order of arrival.
        let frames: Vec<_> = agents.iter().map(|agent| agent.unacknowledged(0)).collect();
        let most = frames.iter().map(Vec::len).max().unwrap_or(0);
        let mut rows = Vec::new();
        for number in 0..most {
            for (agent, frames) in frames.iter().enumerate() {
                if let Some(bytes) = frames.get(number) {
                    push(&mut rows, agent, &Frame::decode(bytes)?)?;
                }
            }
        }
        Ok(Self { transactions: rows.chunks(TRANSACTION_ROWS).map(<[Row]>::to_vec).collect() })
    }

    fn count(&self) -> u64 {
        self.transactions.iter().map(|rows| rows.len() as u64).sum()
    }

    /// Inserts the rows into an empty store whose tables a collector has created, over `writers` connections
    /// if it is a server.
    pub(crate) fn store(&self, kind: Kind, writers: usize) -> Result<Taken, Box<dyn Error>> {
        let scratch = tempfile::tempdir()?;
        let store = Store::start(kind)?;
        let listen = format!("ipc://{}/collector", scratch.path().display());
        Collector::start(scratch.path(), &listen, &store, "")?.stop()?;
        match kind {
            Kind::Sqlite => {
                let seconds = self.insert(&store)?;
                self.taken(&store, seconds, 0.0)
            }
            Kind::Postgres | Kind::Citus => {
                let citus = "SET citus.multi_shard_modify_mode = 'sequential';\n";
                let settings = if kind == Kind::Citus { citus } else { "" };
                // A collector creates the partition of a day when it receives the first samples of that day.
                for days_ago in [0, 1] {
                    let day = format!("(now() AT TIME ZONE 'UTC')::date - {days_ago}");
                    store.ask(&format!("SELECT polymeter_create_partition({day})"))?;
                }
                self.copy(&store, settings, writers)
            }
            Kind::Timescaledb => {
                self.copy(&store, "SET timescaledb.enable_direct_compress_copy = on;\n", writers)
            }
        }
    }

    fn taken(&self, store: &Store, seconds: f64, server_cpu_s: f64) -> Result<Taken, Box<dyn Error>> {
        let (samples, stored) = (self.count(), store.samples()?);
        if stored != samples {
            return Err(format!("{samples} rows were copied, and {stored} are stored").into());
        }
        Ok(Taken { samples, seconds, collector_cpu_s: 0.0, server_cpu_s, bytes: store.bytes()? })
    }

    fn insert(&self, store: &Store) -> Result<f64, Box<dyn Error>> {
        let mut connection = rusqlite::Connection::open(store.file()?)?;
        // The collector's settings.
        connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;")?;
        let begin_ns = now_ns();
        for rows in &self.transactions {
            let transaction = connection.transaction()?;
            let mut insert = transaction
                .prepare_cached("INSERT INTO samples (time, series_id, value) VALUES (?1, ?2, ?3)")?;
            for (time_us, series, value) in rows {
                insert.execute((time_us * 1_000, series, value))?;
            }
            drop(insert);
            transaction.commit()?;
        }
        let seconds = to_f64(now_ns() - begin_ns) / 1e9;
        // Checkpoints the log into the file, as a collector does at its exit.
        connection.close().map_err(|(_, error)| error)?;
        Ok(seconds)
    }

    fn copy(&self, store: &Store, settings: &str, writers: usize) -> Result<Taken, Box<dyn Error>> {
        let directory = tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir()?;
        let has_keys = store.kind() == Kind::Citus;
        // The table also has the columns of windows.
        let columns = if has_keys { "time, series_id, value, node_key" } else { "time, series_id, value" };
        let mut scripts = vec![settings.to_owned(); writers];
        for (number, rows) in self.transactions.iter().enumerate() {
            let path = directory.path().join(format!("{number}.copy"));
            fs::write(&path, encode(rows, has_keys))?;
            if let Some(script) = scripts.get_mut(number % writers) {
                script.push_str(&format!(
                    "\\copy samples ({columns}) FROM '{}' (FORMAT binary)\n",
                    path.display()
                ));
            }
        }
        let before_s = store.usage()?.cpu_s;
        let begin_ns = now_ns();
        let copies = scripts.iter().enumerate().map(|(number, script)| {
            let path = directory.path().join(format!("{number}.sql"));
            fs::write(&path, script)?;
            Ok(store.psql()?.arg("-f").arg(path).stdout(Stdio::null()).spawn()?)
        });
        let mut copies = copies.collect::<Result<Vec<Child>, Box<dyn Error>>>()?;
        for copy in &mut copies {
            let status = copy.wait()?;
            if !status.success() {
                return Err(format!("a COPY failed: {status}").into());
            }
        }
        let seconds = to_f64(now_ns() - begin_ns) / 1e9;
        let server_cpu_s = store.usage()?.cpu_s - before_s;
        self.taken(store, seconds, server_cpu_s)
    }
}

fn push(rows: &mut Vec<Row>, agent: usize, frame: &Frame) -> Result<(), Box<dyn Error>> {
    for block in &frame.blocks {
        for (column, values) in block.iter() {
            // Any series id of the agent serves, as long as the same column always gets the same id.
            let series = agent * SERIES_PER_AGENT + block.shape.0 as usize % 10 * 100 + column % 100;
            let series = i64::try_from(series)?;
            let of_column = block.times_us.iter().zip(values);
            // The recording contains unsigned counts only.
            rows.extend(of_column.map(|(time_us, bits)| (*time_us, series, Number::Unsigned.to_f64(*bits))));
        }
    }
    Ok(())
}

/// Encodes rows for a COPY. With `has_keys` each has the key of its node, which is distinct for each agent.
fn encode(rows: &[Row], has_keys: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(rows.len() * 46 + HEADER.len() + TRAILER.len());
    bytes.extend_from_slice(HEADER);
    for (time_us, series, value) in rows {
        bytes.extend_from_slice(&(if has_keys { 4_i16 } else { 3 }).to_be_bytes());
        bytes.extend_from_slice(&8_i32.to_be_bytes());
        bytes.extend_from_slice(&(time_us - POSTGRES_EPOCH_US).to_be_bytes());
        bytes.extend_from_slice(&8_i32.to_be_bytes());
        bytes.extend_from_slice(&series.to_be_bytes());
        bytes.extend_from_slice(&8_i32.to_be_bytes());
        bytes.extend_from_slice(&value.to_be_bytes());
        if has_keys {
            let agent = series / i64::try_from(SERIES_PER_AGENT).unwrap_or(1);
            bytes.extend_from_slice(&4_i32.to_be_bytes());
            bytes.extend_from_slice(&i32::try_from(agent).unwrap_or_default().to_be_bytes());
        }
    }
    bytes.extend_from_slice(&TRAILER);
    bytes
}
