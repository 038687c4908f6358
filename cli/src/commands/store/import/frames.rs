//! Frames that store the samples of a file, each node's in a session of its own.
//!
//! The ids of the sessions follow from the contents of the file, and the frames from its parts: the store has
//! each part once, also if an import is interrupted and repeated.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use polymeter_proto::catalogue::{self, derived};
use polymeter_proto::ledger::{JobDetails, JobFacts};
use polymeter_proto::name::MetricName;
use polymeter_proto::run::Run;
use polymeter_proto::series::{
    Identifier, JobDescriptor, JobHandle, Kind, Labels, MetricDescriptor, Number, Processors,
    SessionDescriptor, SessionId, Unit,
};
use polymeter_proto::text::Text;
use polymeter_samples_file::{Rows, SeriesTexts};
use polymeter_store::StoreError;
use polymeter_store::accepted::{
    Accepted, JobRecord, LedgerLine, SampleBlock, SeriesRecord, SessionRecord, StoreId, WindowColumns,
};
use polymeter_store::reader::{Reader, SampleWindow, SeriesScope};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::error::{ImportError, InvalidFile};
use crate::commands::export::{Roles, device_label};

/// Stands for the version of the agent in the sessions, and for the source of all samples in the ledger.
const IMPORT: &str = "import";

const HANDLE: JobHandle = JobHandle(1);

#[derive(Debug, Deserialize)]
pub(super) struct ExportedJob {
    job_id: String,
    cluster: Option<String>,
    owner: Option<String>,
    owner_uid: Option<u32>,
    account: Option<String>,
    queue: Option<String>,
    /// Place where the job was followed.
    nodes: Vec<String>,
    node_list: Option<String>,
    cores: Option<u32>,
    gpus: Option<u32>,
    started_ns: i64,
    ended_ns: Option<i64>,
    state: Option<String>,
    exit_code: Option<u32>,
    exit_signal: Option<u32>,
    name: Option<String>,
    display_id: Option<String>,
    time_limit_s: Option<u64>,
    memory_bytes: Option<u64>,
    restarts: Option<u32>,
    unread: Option<String>,
    run: Option<Box<Run>>,
    scheduler: Option<String>,
    #[serde(default)]
    processors: BTreeMap<String, Processors>,
}

impl ExportedJob {
    /// None if the description lacks what identifies the job.
    pub(super) fn parse(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

/// A session with the samples of a node.
struct Node {
    session: Arc<SessionRecord>,
    job: Arc<JobRecord>,
    /// Lines of the ledger: of the job, and of the node.
    lines: [Arc<LedgerLine>; 2],
    sequence: u64,
    /// Series of the node itself in the store, by metric and labels; none if they were not needed yet.
    stored: Option<HashMap<(String, Labels), i64>>,
}

pub(super) struct Frames {
    descriptor: JobDescriptor,
    facts: JobFacts,
    details: JobDetails,
    /// End of the job, in microseconds since the epoch; none if it ran when it was exported.
    ended_us: Option<i64>,
    newest_us: i64,
    roles: Roles,
    processors: BTreeMap<String, Processors>,
    digest: [u8; 32],
    received_us: i64,
    sequence: u64,
    nodes: BTreeMap<String, Node>,
    series: HashMap<SeriesTexts, Arc<SeriesRecord>>,
}

impl Frames {
    /// Prepares the frames of a file with these roles of devices and this digest.
    pub(super) fn new(
        job: ExportedJob,
        roles: Roles,
        digest: [u8; 32],
        received_us: i64,
    ) -> Result<Self, InvalidFile> {
        let optional = |name: Option<&String>| name.map(|name| identifier(name)).transpose();
        let mut frames = Self {
            descriptor: JobDescriptor {
                job_id: identifier(&job.job_id)?,
                cluster: optional(job.cluster.as_ref())?,
                owner_uid: job.owner_uid,
                owner: optional(job.owner.as_ref())?,
                started_us: job.started_ns / 1000,
            },
            facts: JobFacts {
                account: optional(job.account.as_ref())?,
                queue: optional(job.queue.as_ref())?,
                nodes: optional(job.node_list.as_ref())?,
                cores: job.cores,
                state: optional(job.state.as_ref())?,
                exit_code: job.exit_code,
                exit_signal: job.exit_signal,
                unread: job.unread.as_deref().map(Text::of),
            },
            details: JobDetails {
                name: job.name.as_deref().map(Text::of),
                display_id: optional(job.display_id.as_ref())?,
                time_limit_s: job.time_limit_s,
                memory_bytes: job.memory_bytes,
                gpus: job.gpus,
                restarts: job.restarts,
                run: job.run,
                scheduler: optional(job.scheduler.as_ref())?,
                ..JobDetails::default()
            },
            ended_us: job.ended_ns.map(|ended_ns| ended_ns / 1000),
            newest_us: job.started_ns / 1000,
            roles,
            processors: job.processors,
            digest,
            received_us,
            sequence: 0,
            nodes: BTreeMap::new(),
            series: HashMap::new(),
        };
        for node in &job.nodes {
            frames.node(node)?;
        }
        Ok(frames)
    }

    pub(super) const fn job(&self) -> &JobDescriptor {
        &self.descriptor
    }

    /// Session that the store has if an earlier import of the same file was interrupted; none if the job has
    /// no node.
    pub(super) fn first_session(&self) -> Option<SessionId> {
        self.nodes.values().next().map(|node| node.session.id)
    }

    /// First frames, which have the job on its nodes.
    pub(super) fn begin(&mut self) -> Vec<Accepted> {
        self.sequence = 1;
        let mut frames = Vec::new();
        for node in self.nodes.values_mut() {
            let mut frame = node.frame(self.sequence, self.received_us);
            frame.job_facts.push((Arc::clone(&node.job), self.facts.clone()));
            frame.job_details.push((Arc::clone(&node.job), self.details.clone()));
            frames.push(frame);
        }
        frames
    }

    /// Frames of the next part of the file: those of its samples that the store does not have already in the
    /// series of a node, which is in the files of several jobs.
    pub(super) fn part(&mut self, rows: &Rows, reader: &mut Reader) -> Result<Vec<Accepted>, ImportError> {
        self.sequence += 1;
        let mut frames: BTreeMap<String, Accepted> = BTreeMap::new();
        for (texts, samples) in rows.series() {
            // Readers compute them from the others.
            if derived::find(&texts.metric).is_some() {
                continue;
            }
            let series = self.series(texts)?;
            let (sequence, received_us) = (self.sequence, self.received_us);
            let node = self.node(&texts.node)?;
            let mut samples: Vec<FileRow> = samples.collect();
            if texts.job_id.is_none() {
                node.retain_new(reader, &series, &mut samples)?;
            }
            let frame = frames.entry(texts.node.clone()).or_insert_with(|| node.frame(sequence, received_us));
            let [of_job, of_node] = &node.lines;
            let newest_us = samples.iter().map(|(time_us, ..)| *time_us).max();
            let line = if series.job.is_some() { of_job } else { of_node };
            let (windows, samples): (Vec<FileRow>, Vec<FileRow>) =
                samples.into_iter().partition(|(.., window)| window.is_some());
            for rows in [samples, windows] {
                if !rows.is_empty() {
                    frame.samples.push(block(line, &series, &rows));
                }
            }
            self.newest_us = self.newest_us.max(newest_us.unwrap_or(i64::MIN));
        }
        Ok(frames.into_values().collect())
    }

    /// Last frames, which have the end of the job and of the sessions. A job that ran when it was exported
    /// ends with its last sample.
    pub(super) fn end(&mut self) -> Vec<Accepted> {
        self.sequence += 1;
        let ended_us = self.ended_us.unwrap_or(self.newest_us);
        let mut frames = Vec::new();
        for node in self.nodes.values_mut() {
            let mut frame = node.frame(self.sequence, self.received_us);
            frame.job_ends.push((Arc::clone(&node.job), ended_us));
            frame.session_end_us = Some(ended_us);
            frames.push(frame);
        }
        frames
    }

    /// Begins the session of the node with the job.
    fn node(&mut self, name: &str) -> Result<&mut Node, InvalidFile> {
        if !self.nodes.contains_key(name) {
            let processors = self.processors.get(name).copied().unwrap_or_default();
            let node = Node::new((identifier(name)?, processors), &self.descriptor, &self.digest)?;
            self.nodes.insert(name.to_owned(), node);
        }
        self.nodes.get_mut(name).ok_or_else(|| InvalidFile::Name(Text::of(name)))
    }

    fn series(&mut self, texts: &SeriesTexts) -> Result<Arc<SeriesRecord>, InvalidFile> {
        if let Some(series) = self.series.get(texts) {
            return Ok(Arc::clone(series));
        }
        let of_job = texts.job_id.as_deref();
        if let Some(other) = of_job.filter(|job_id| *job_id != self.descriptor.job_id.as_str()) {
            return Err(InvalidFile::OtherJob(Text::of(other)));
        }
        let metric = Arc::new(metric(texts)?);
        let labels = labels(&texts.labels)?;
        let of_node = self.roles.get(&texts.node);
        let role = device_label(&labels).and_then(|label| of_node?.get(&label)?.parse().ok());
        let labels = Arc::new(labels.with_role(role));
        let node = self.node(&texts.node)?;
        let series = Arc::new(SeriesRecord {
            session: Arc::clone(&node.session),
            metric,
            job: of_job.map(|_| Arc::clone(&node.job)),
            labels,
            id: StoreId::none(),
        });
        self.series.insert(texts.clone(), Arc::clone(&series));
        Ok(series)
    }
}

impl Node {
    fn new(
        (name, processors): (Identifier, Processors),
        job: &JobDescriptor,
        file: &[u8; 32],
    ) -> Result<Self, InvalidFile> {
        let digest: [u8; 32] = Sha256::new().chain_update(file).chain_update(name.as_str()).finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        let session = Arc::new(SessionRecord {
            id: SessionId(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
            descriptor: SessionDescriptor {
                node: name,
                agent_version: identifier(IMPORT)?,
                started_us: job.started_us,
                processors,
            },
        });
        let job = Arc::new(JobRecord {
            session: Arc::clone(&session),
            handle: HANDLE,
            descriptor: job.clone(),
            key: StoreId::none(),
        });
        let line = |job: Option<&Arc<JobRecord>>| {
            Ok::<_, InvalidFile>(Arc::new(LedgerLine {
                session: Arc::clone(&session),
                job: job.map(Arc::clone),
                source: identifier(IMPORT)?,
                id: StoreId::none(),
            }))
        };
        let lines = [line(Some(&job))?, line(None)?];
        Ok(Self { session, job, lines, sequence: 0, stored: None })
    }

    /// An empty frame with this number, behind the node's frame before.
    fn frame(&mut self, sequence: u64, received_us: i64) -> Accepted {
        let mut frame = Accepted::empty(Arc::clone(&self.session), sequence, received_us);
        frame.follows = self.sequence;
        self.sequence = sequence;
        frame
    }

    /// Removes the samples of a series of the node at times for which the store has one.
    fn retain_new(
        &mut self,
        reader: &mut Reader,
        series: &SeriesRecord,
        samples: &mut Vec<FileRow>,
    ) -> Result<(), StoreError> {
        let stored = match &mut self.stored {
            Some(stored) => stored,
            stored => {
                let rows = reader.series(SeriesScope::Node(series.node().as_str()))?;
                let by_name = rows.into_iter().map(|row| ((row.metric, row.labels), row.series_id));
                stored.insert(by_name.collect())
            }
        };
        let name = (series.metric.name.to_string(), Labels::clone(&series.labels));
        let Some(id) = stored.get(&name) else { return Ok(()) };
        let times = || samples.iter().map(|(time_us, ..)| *time_us);
        let Some((first_us, last_us)) = times().min().zip(times().max()) else { return Ok(()) };
        let span_ns = first_us.saturating_mul(1000)..last_us.saturating_add(1).saturating_mul(1000);
        let points = reader.points(*id, span_ns)?;
        let known: HashSet<i64> = points.into_iter().map(|(time_ns, _)| time_ns / 1000).collect();
        samples.retain(|(time_us, ..)| !known.contains(time_us));
        Ok(())
    }
}

fn identifier(name: &str) -> Result<Identifier, InvalidFile> {
    Identifier::try_from(name).ok().ok_or_else(|| InvalidFile::Name(Text::of(name)))
}

/// A metric that the catalogue does not have was supplied by a user: a gauge.
fn metric(texts: &SeriesTexts) -> Result<MetricDescriptor, InvalidFile> {
    let unit = Unit::ALL.into_iter().find(|unit| unit.as_str() == texts.unit);
    Ok(MetricDescriptor {
        name: MetricName::new(texts.metric.clone())
            .ok()
            .ok_or_else(|| InvalidFile::Name(Text::of(&texts.metric)))?,
        unit: unit.ok_or_else(|| InvalidFile::Unit {
            metric: Text::of(&texts.metric),
            unit: Text::of(&texts.unit),
        })?,
        kind: catalogue::find(&texts.metric).map_or(Kind::Gauge, |known| known.metric.kind),
        number: Number::Float,
    })
}

fn labels(json: &str) -> Result<Labels, InvalidFile> {
    let pairs: Option<BTreeMap<String, String>> = serde_json::from_str(json).ok();
    pairs
        .and_then(|pairs| Labels::new(pairs.into_iter().collect()).ok())
        .ok_or_else(|| InvalidFile::Labels(Text::of(json)))
}

/// Time in microseconds since the epoch, value, and window of a row of the file.
type FileRow = (i64, f64, Option<SampleWindow>);

/// Rows of one series: all of them samples, or all of them windows.
fn block(line: &Arc<LedgerLine>, series: &Arc<SeriesRecord>, rows: &[FileRow]) -> SampleBlock {
    let mut windows = WindowColumns::default();
    for window in rows.iter().filter_map(|(.., window)| *window) {
        windows.counts.push(window.count);
        windows.min.push(window.min);
        windows.max.push(window.max);
        windows.sum.push(window.sum);
    }
    SampleBlock {
        line: Arc::clone(line),
        series: vec![Arc::clone(series)],
        times_us: rows.iter().map(|(time_us, ..)| *time_us).collect(),
        values: rows.iter().map(|(_, value, _)| value.to_bits()).collect(),
        windows: (!windows.counts.is_empty()).then_some(windows),
    }
}
