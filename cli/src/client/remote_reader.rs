//! Reading from a collector's store, through the collector.

use std::io::{self, BufReader, Read as _, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use polymeter_client::connection::collector::{Collector, timed_out};
use polymeter_client::connection::stream::Stream;
use polymeter_proto::control::ReadAccess;
use polymeter_proto::limits;
use polymeter_proto::read::{Frame, JobFilter, LENGTH_BYTES, Query, RowBlock, frame_length};
use polymeter_store::StoreError;
use polymeter_store::reader::Read;

use crate::failure::Failure;

/// The maximum time until the next rows: the database may have to sort all samples of a job first.
const ROWS_TIMEOUT: Duration = Duration::from_secs(300);

/// A session of reading.
#[derive(Debug)]
pub(crate) struct RemoteReader {
    stream: BufReader<Stream>,
    /// The collector's address, for messages.
    endpoint: String,
    /// The content of the last frame, whose memory is reused.
    content: Vec<u8>,
}

impl RemoteReader {
    /// Connects to a collector. Returns the reader, and the jobs that it sees.
    pub(super) fn connect(collector: &Collector) -> Result<(Self, ReadAccess), Failure> {
        let (stream, access) = collector.read()?;
        let endpoint = collector.name();
        stream.get_ref().set_read_timeout(ROWS_TIMEOUT).map_err(|error| {
            Failure::Unreachable(format!("cannot read through the collector at {endpoint}: {error}"))
        })?;
        Ok((Self { stream, endpoint, content: Vec::new() }, access))
    }

    /// Sends one query, and passes its rows to `each`. Returns whether `each` wants further rows.
    fn query(
        &mut self,
        query: &Query,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        self.stream.get_mut().write_all(&query.to_line()).map_err(|error| self.broken(&error))?;
        loop {
            match self.frame()? {
                Frame::Rows(block) => {
                    if each(block).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Frame::End => return Ok(ControlFlow::Continue(())),
                Frame::Error(error) => {
                    let endpoint = &self.endpoint;
                    return Err(StoreError::Unusable(format!(
                        "cannot read through the collector at {endpoint}: {}",
                        error.message
                    )));
                }
            }
        }
    }

    fn frame(&mut self) -> Result<Frame, StoreError> {
        let mut head = [0; LENGTH_BYTES];
        self.stream.read_exact(&mut head).map_err(|error| self.broken(&error))?;
        let length = frame_length(head).map_err(|error| self.garbled(&error))?;
        self.content.resize(length, 0);
        self.stream.read_exact(&mut self.content).map_err(|error| self.broken(&error))?;
        Frame::decode(&self.content).map_err(|error| self.garbled(&error))
    }

    /// Returns the error for a broken connection.
    fn broken(&self, error: &io::Error) -> StoreError {
        let cause = if error.kind() == io::ErrorKind::UnexpectedEof {
            "it closed the connection".to_owned()
        } else {
            timed_out(io::Error::new(error.kind(), error.to_string()), ROWS_TIMEOUT).to_string()
        };
        let endpoint = &self.endpoint;
        StoreError::Unusable(format!(
            "cannot read through the collector at {endpoint}: {cause}; try again in a moment"
        ))
    }

    /// Returns the error for bytes that are no frame.
    fn garbled(&self, error: &dyn std::error::Error) -> StoreError {
        let endpoint = &self.endpoint;
        StoreError::Unusable(format!(
            "cannot read the answer of the collector at {endpoint}: {error}; check that collector and command have the same version"
        ))
    }

    /// Reads the jobs page by page.
    fn jobs(
        &mut self,
        filter: &JobFilter,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut page = filter.clone();
        let mut left = filter.limit;
        while left > 0 {
            page.limit = left.min(limits::QUERY_JOBS);
            let (mut count, mut last) = (0, None);
            let flow = self.query(&Query::Jobs(page.clone()), &mut |block| {
                if let RowBlock::Jobs(rows) = &block {
                    count += u32::try_from(rows.len()).unwrap_or(u32::MAX);
                    last = rows.last().map(|row| (row.listed_ns, row.job_key)).or(last);
                }
                each(block)
            })?;
            left = left.saturating_sub(count);
            if flow.is_break() || count < page.limit {
                break;
            }
            page.before = last;
        }
        Ok(())
    }
}

impl Read for RemoteReader {
    fn read(
        &mut self,
        query: &Query,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let parts = match query {
            Query::Jobs(filter) => return self.jobs(filter, each),
            Query::LastLosses { limit } => {
                vec![Query::LastLosses { limit: (*limit).min(limits::QUERY_LOSSES) }]
            }
            Query::Samples { of, series, span_ns } => {
                let parts = series.parts(limits::QUERY_SERIES, limits::QUERY_RANGES).into_iter();
                let part = |series| Query::Samples { of: of.clone(), series, span_ns: span_ns.clone() };
                parts.map(part).collect()
            }
            Query::Buckets { rollup, of, series, span_ns } => {
                let parts = series.parts(limits::QUERY_SERIES, limits::QUERY_RANGES).into_iter();
                let part = |series| Query::Buckets {
                    rollup: *rollup,
                    of: of.clone(),
                    series,
                    span_ns: span_ns.clone(),
                };
                parts.map(part).collect()
            }
            Query::CandidateIds { .. }
            | Query::Series { .. }
            | Query::Cpus { .. }
            | Query::Agents { .. }
            | Query::Ledger { .. }
            | Query::PlanChanges { .. }
            | Query::RefusedRequests { .. }
            | Query::Marks { .. }
            | Query::Losses { .. }
            | Query::NodeSeries { .. }
            | Query::JobSeries { .. }
            | Query::JobMetrics { .. }
            | Query::JobNodes { .. }
            | Query::FinestRollup { .. } => vec![query.clone()],
        };
        for part in &parts {
            if self.query(part, each)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}
