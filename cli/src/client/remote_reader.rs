//! Reading from a collector's store, through the collector.

use std::io::{self, BufReader, Read as _, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use polymeter_client::connection::collector::{Collector, timed_out};
use polymeter_client::connection::stream::Stream;
use polymeter_proto::control::ReadAccess;
use polymeter_proto::limits;
use polymeter_proto::read::{Frame, JobFilter, LENGTH_BYTES, Query, RowBlock, frame_length};
use polymeter_service::clock;
use polymeter_store::StoreError;
use polymeter_store::reader::Read;

use crate::failure::Failure;

/// Maximum time until the next rows: the database may have to sort all samples of a job first.
const ROWS_TIMEOUT: Duration = Duration::from_secs(300);

/// Maximum time of one answer, whatever it contains: a link of 10 Mbit/s carries a billion samples in it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(crate) struct RemoteReader {
    stream: BufReader<Stream>,
    /// Text for messages.
    endpoint: String,
    /// Content of the last frame; its memory is reused.
    content: Vec<u8>,
}

impl RemoteReader {
    /// Also returns the jobs that the reader sees.
    pub(super) fn connect(collector: &Collector) -> Result<(Self, ReadAccess), Failure> {
        let (stream, access) = collector.read()?;
        Ok((Self { stream, endpoint: collector.name(), content: Vec::new() }, access))
    }

    /// Passes the rows to `each`. Returns whether `each` wants further rows.
    fn query(
        &mut self,
        query: &Query,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let began_ns = clock::monotonic_ns();
        self.stream.get_mut().set_timeout(ROWS_TIMEOUT);
        self.stream.get_mut().write_all(&query.to_line()).map_err(|error| self.broken(&error))?;
        loop {
            if u128::from(clock::monotonic_ns() - began_ns) > ANSWER_TIMEOUT.as_nanos() {
                let (endpoint, hours) = (&self.endpoint, ANSWER_TIMEOUT.as_secs() / 3600);
                return Err(StoreError::Unusable(format!(
                    "cannot read through the collector at {endpoint}: the answer takes more than {hours} h; ask for \
                     fewer metrics"
                )));
            }
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
        self.stream.get_mut().set_timeout(ROWS_TIMEOUT);
        let mut head = [0; LENGTH_BYTES];
        self.stream.read_exact(&mut head).map_err(|error| self.broken(&error))?;
        let length = frame_length(head).map_err(|error| self.garbled(&error))?;
        self.content.resize(length, 0);
        self.stream.read_exact(&mut self.content).map_err(|error| self.broken(&error))?;
        Frame::decode(&self.content).map_err(|error| self.garbled(&error))
    }

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

    fn garbled(&self, error: &dyn std::error::Error) -> StoreError {
        let endpoint = &self.endpoint;
        StoreError::Unusable(format!(
            "cannot read the answer of the collector at {endpoint}: {error}; check that collector and command have the same version"
        ))
    }

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
            let flow = self.query(&Query::Jobs(Box::new(page.clone())), &mut |block| {
                if let RowBlock::Jobs(rows) = &block {
                    count += u32::try_from(rows.len()).unwrap_or(u32::MAX);
                    last = rows.last().map(|row| (row.listed, row.job_key)).or(last);
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
            Query::Samples { of, series, span_ns, set } => {
                let parts = series.parts(limits::QUERY_SERIES, limits::QUERY_RANGES).into_iter();
                parts
                    .map(|series| Query::Samples {
                        of: of.clone(),
                        series,
                        span_ns: span_ns.clone(),
                        set: *set,
                    })
                    .collect()
            }
            Query::Buckets { rollup, of, series, span_ns } => {
                let parts = series.parts(limits::QUERY_SERIES, limits::QUERY_RANGES).into_iter();
                parts
                    .map(|series| Query::Buckets {
                        rollup: *rollup,
                        of: of.clone(),
                        series,
                        span_ns: span_ns.clone(),
                    })
                    .collect()
            }
            Query::CandidateIds { .. }
            | Query::Usage { .. }
            | Query::Notices { .. }
            | Query::Series { .. }
            | Query::Cpus { .. }
            | Query::Agents { .. }
            | Query::Ledger { .. }
            | Query::PlanChanges { .. }
            | Query::RefusedRequests { .. }
            | Query::Marks { .. }
            | Query::KeptIntervals { .. }
            | Query::Firings { .. }
            | Query::Histograms { .. }
            | Query::Losses { .. }
            | Query::Stacks { .. }
            | Query::StackIntervals { .. }
            | Query::StackNodes { .. }
            | Query::NodeSeries { .. }
            | Query::DeviceSeries { .. }
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
