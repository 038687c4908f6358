//! The rights of readers: a user reads the own jobs, an administrator all.
//!
//! The guard checks every query. A job of another user has the same answer as an unknown one, by the same statements, so that
//! neither reveals which jobs exist.

use std::ops::ControlFlow;

use polymeter_proto::read::{IdRanges, JobFilter, Query, RowBlock, SeriesOwner};

use super::read::Read;
use crate::StoreError;

/// The jobs that a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// All jobs, and the series of nodes.
    All,
    /// The jobs of the user with this numeric id, and of nodes the number of CPUs. Jobs without a known owner are not among
    /// them.
    Owner(u32),
}

/// The job that was read last. A report has many queries about one job.
#[derive(Debug)]
struct CurrentJob {
    job_key: i64,
    /// The ids of its series, once they are known.
    series: Option<IdRanges>,
}

/// A reader that answers only what an [`Access`] permits. Rows that it does not permit are left out.
#[derive(Debug)]
pub struct GuardedReader<R> {
    reader: R,
    access: Access,
    /// The last job that belongs to the user.
    current: Option<CurrentJob>,
}

/// The receiver of rows.
type Each<'a> = &'a mut dyn FnMut(RowBlock) -> ControlFlow<()>;

impl<R: Read> GuardedReader<R> {
    /// Returns a guard in front of `reader`.
    pub const fn new(reader: R, access: Access) -> Self {
        Self { reader, access, current: None }
    }

    /// Returns true if the job belongs to the user.
    fn owns(&mut self, uid: u32, job_key: i64) -> Result<bool, StoreError> {
        if self.current.as_ref().is_some_and(|current| current.job_key == job_key) {
            return Ok(true);
        }
        let filter = JobFilter {
            job_key: Some(job_key),
            owner_uid: Some(uid.into()),
            limit: 1,
            ..JobFilter::default()
        };
        let mut is_found = false;
        self.reader.read(&Query::Jobs(filter), &mut |block| {
            is_found |= !block.is_empty();
            ControlFlow::Continue(())
        })?;
        if is_found {
            self.current = Some(CurrentJob { job_key, series: None });
        }
        Ok(is_found)
    }

    /// Passes the series of the user's job on, and remembers their ids.
    fn read_series(&mut self, job_key: i64, each: Each<'_>) -> Result<(), StoreError> {
        let (mut ids, mut is_complete) = (Vec::new(), true);
        self.reader.read(&Query::Series { of: SeriesOwner::Job(job_key) }, &mut |block| {
            if let RowBlock::Series(rows) = &block {
                ids.extend(rows.iter().map(|row| row.series_id));
            }
            let flow = each(block);
            is_complete &= flow.is_continue();
            flow
        })?;
        if let Some(current) = self.current.as_mut().filter(|current| current.job_key == job_key) {
            current.series = is_complete.then(|| ids.into_iter().collect());
        }
        Ok(())
    }

    /// Returns those of the ids that are series of the user's job.
    fn series_of_job(&mut self, job_key: i64, wanted: &IdRanges) -> Result<IdRanges, StoreError> {
        let permitted = |guard: &Self| {
            let series = guard.current.as_ref().and_then(|current| current.series.as_ref());
            series.map(|series| series.intersection(wanted))
        };
        // A running job may have got further series since its series were read.
        if let Some(found) = permitted(self).filter(|found| found == wanted) {
            return Ok(found);
        }
        self.read_series(job_key, &mut |_| ControlFlow::Continue(()))?;
        Ok(permitted(self).unwrap_or_default())
    }

    fn read_as_owner(&mut self, uid: u32, query: &Query, each: Each<'_>) -> Result<(), StoreError> {
        match query {
            Query::Jobs(filter) => {
                let uid = i64::from(uid);
                if filter.owner_uid.is_some_and(|owner| owner != uid) {
                    return Ok(());
                }
                let filter = JobFilter { owner_uid: Some(uid), ..filter.clone() };
                self.reader.read(&Query::Jobs(filter), each)
            }
            Query::CandidateIds { job_id, .. } => {
                let own = Query::CandidateIds { job_id: job_id.clone(), owner_uid: Some(uid.into()) };
                self.reader.read(&own, each)
            }
            Query::Cpus { .. } => self.reader.read(query, each),
            Query::LastLosses { .. }
            | Query::Series { of: SeriesOwner::Node(_) }
            | Query::Samples { of: SeriesOwner::Node(_), .. }
            | Query::Buckets { of: SeriesOwner::Node(_), .. } => Ok(()),
            Query::Series { of: SeriesOwner::Job(job_key) }
            | Query::Samples { of: SeriesOwner::Job(job_key), .. }
            | Query::Buckets { of: SeriesOwner::Job(job_key), .. }
            | Query::Ledger { job_key }
            | Query::PlanChanges { job_key }
            | Query::RefusedRequests { job_key }
            | Query::Marks { job_key }
            | Query::Losses { job_key }
            | Query::FinestRollup { job_key, .. } => {
                if self.owns(uid, *job_key)? {
                    self.read_own_job(*job_key, query, each)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Passes on the rows of a query about a job of the user.
    fn read_own_job(&mut self, job_key: i64, query: &Query, each: Each<'_>) -> Result<(), StoreError> {
        let of = SeriesOwner::Job(job_key);
        match query {
            Query::Series { .. } => self.read_series(job_key, each),
            Query::Samples { series, span_ns, .. } => {
                let (series, span_ns) = (self.series_of_job(job_key, series)?, span_ns.clone());
                self.reader.read(&Query::Samples { of, series, span_ns }, each)
            }
            Query::Buckets { rollup, series, span_ns, .. } => {
                let (series, span_ns) = (self.series_of_job(job_key, series)?, span_ns.clone());
                self.reader.read(&Query::Buckets { rollup: *rollup, of, series, span_ns }, each)
            }
            Query::Losses { .. } => {
                self.reader.read(query, &mut |block| each(without_other_jobs(block, job_key)))
            }
            Query::Jobs(_)
            | Query::CandidateIds { .. }
            | Query::Cpus { .. }
            | Query::LastLosses { .. }
            | Query::Ledger { .. }
            | Query::PlanChanges { .. }
            | Query::RefusedRequests { .. }
            | Query::Marks { .. }
            | Query::FinestRollup { .. } => self.reader.read(query, each),
        }
    }
}

/// Removes the keys of other jobs from losses, some of which concern a whole node.
fn without_other_jobs(mut block: RowBlock, job_key: i64) -> RowBlock {
    if let RowBlock::Losses(rows) = &mut block {
        for row in rows {
            row.job_key = row.job_key.filter(|key| *key == job_key);
        }
    }
    block
}

impl<R: Read> Read for GuardedReader<R> {
    fn read(&mut self, query: &Query, each: Each<'_>) -> Result<(), StoreError> {
        match self.access {
            Access::All => self.reader.read(query, each),
            Access::Owner(uid) => self.read_as_owner(uid, query, each),
        }
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::ledger::Tally;
    use polymeter_proto::read::{JobRow, LossRow, ReadRow, Rollup, SampleRow, SeriesRow};
    use polymeter_proto::series::Labels;

    use super::*;

    const USER: u32 = 1000;
    const OWN: i64 = 1;
    /// A job of another user, a job without a known owner, and an unknown job.
    const OTHERS: [i64; 3] = [2, 3, 99];

    /// A reader with a job of each kind, that answers every query about them with a row. It records the queries.
    #[derive(Default)]
    struct Everything(Vec<Query>);

    fn job(job_key: i64, owner_uid: Option<i64>) -> JobRow {
        let job = serde_json::json!({
            "job_key": job_key, "job_id": format!("j{job_key}"), "owner_uid": owner_uid, "started_ns": 5,
            "sampled_ns": {"start": 0, "end": 9}, "lost_nodes": [], "nodes": ["n1"],
        });
        serde_json::from_value(job).unwrap()
    }

    fn loss(job_key: i64) -> LossRow {
        LossRow {
            time_ns: 1,
            node: "n1".to_owned(),
            session_id: String::new(),
            job_key: Some(job_key),
            source: None,
            samples: 1,
            reason: String::new(),
            first_time_ns: 1,
            last_time_ns: 1,
        }
    }

    impl Read for Everything {
        fn read(&mut self, query: &Query, each: Each<'_>) -> Result<(), StoreError> {
            self.0.push(query.clone());
            let series = |id| SeriesRow {
                series_id: id,
                node: "n1".to_owned(),
                metric: "m".to_owned(),
                unit: "1".to_owned(),
                kind: "gauge".to_owned(),
                labels: Labels::default(),
            };
            let block = match query {
                Query::Jobs(filter) => {
                    let all = [job(OWN, Some(USER.into())), job(2, Some(1001)), job(3, None)];
                    let is_selected = |job: &JobRow| {
                        filter.job_key.is_none_or(|key| key == job.job_key)
                            && filter.owner_uid.is_none_or(|uid| Some(uid) == job.owner_uid)
                    };
                    RowBlock::Jobs(all.into_iter().filter(is_selected).collect())
                }
                Query::CandidateIds { owner_uid, .. } => RowBlock::JobIds(vec![format!("{owner_uid:?}")]),
                Query::Series { of: SeriesOwner::Job(key) } => {
                    RowBlock::Series(vec![series(key * 10), series(key * 10 + 1)])
                }
                Query::Series { of: SeriesOwner::Node(_) } => RowBlock::Series(vec![series(7)]),
                Query::Samples { series, .. } | Query::Buckets { series, .. } => {
                    let sample = |series_id| SampleRow { series_id, time_ns: 1, value: 1.0 };
                    RowBlock::Samples(series.ids().map(sample).collect())
                }
                Query::Losses { job_key } => RowBlock::Losses(vec![loss(*job_key), loss(2)]),
                Query::LastLosses { .. } => RowBlock::Losses(vec![loss(2)]),
                Query::Cpus { .. }
                | Query::Ledger { .. }
                | Query::PlanChanges { .. }
                | Query::RefusedRequests { .. }
                | Query::Marks { .. }
                | Query::FinestRollup { .. } => RowBlock::Numbers(vec![Tally::default().due]),
            };
            if !block.is_empty() {
                let _flow = each(block);
            }
            Ok(())
        }
    }

    /// Returns a query of each kind, about a job where there is one.
    fn queries(job_key: i64) -> Vec<Query> {
        let of = SeriesOwner::Job(job_key);
        let series: IdRanges = [job_key * 10, job_key * 10 + 1].into_iter().collect();
        let queries = vec![
            Query::Jobs(JobFilter { job_key: Some(job_key), ..JobFilter::default() }),
            Query::Series { of: of.clone() },
            Query::Samples { of: of.clone(), series: series.clone(), span_ns: 0..9 },
            Query::Buckets { rollup: Rollup::Hour, of, series, span_ns: 0..9 },
            Query::Ledger { job_key },
            Query::PlanChanges { job_key },
            Query::RefusedRequests { job_key },
            Query::Marks { job_key },
            Query::Losses { job_key },
            Query::FinestRollup { job_key, started_ns: 5 },
            Query::CandidateIds { job_id: "7".to_owned(), owner_uid: Some(1001) },
            Query::Cpus { node: "n1".to_owned() },
            Query::LastLosses { limit: 9 },
        ];
        let names: Vec<&str> = queries.iter().map(Query::name).collect();
        assert!(Query::NAMES.iter().all(|name| names.contains(name)), "a query of each kind");
        queries
    }

    /// Returns the blocks that a query has, and the queries that reach the store for it.
    fn answer(access: Access, query: &Query) -> (Vec<RowBlock>, Vec<Query>) {
        let mut guard = GuardedReader::new(Everything::default(), access);
        let mut blocks = Vec::new();
        guard
            .read(query, &mut |block| {
                blocks.push(block);
                ControlFlow::Continue(())
            })
            .unwrap();
        (blocks, guard.reader.0)
    }

    #[test]
    fn a_user_reads_own_jobs_and_administrators_all() {
        for query in queries(OWN) {
            let (of_owner, _) = answer(Access::Owner(USER), &query);
            let is_of_nodes = matches!(query, Query::LastLosses { .. });
            assert_eq!(of_owner.is_empty(), is_of_nodes, "{query:?}");
        }
        for key in [OWN, 2, 3] {
            for query in queries(key) {
                assert!(!answer(Access::All, &query).0.is_empty(), "{query:?}");
            }
        }
    }

    #[test]
    fn jobs_of_others_and_unknown_jobs_are_alike() {
        for (position, query) in queries(OTHERS[0]).iter().enumerate() {
            let name = query.name();
            let is_of_a_job = !["candidate_ids", "cpus"].contains(&name);
            let answers = OTHERS.map(|key| {
                let (blocks, reached) = answer(Access::Owner(USER), &queries(key)[position]);
                let reached = reached.iter().map(|query| {
                    String::from_utf8(query.to_line()).unwrap().replace(&format!("\"job_key\":{key}"), "KEY")
                });
                (blocks, reached.collect::<Vec<_>>())
            });
            assert_eq!(answers[0], answers[1], "{name}");
            assert_eq!(answers[0], answers[2], "{name}");
            assert_eq!(answers[0].0.is_empty(), is_of_a_job, "{name}");
        }
    }

    #[test]
    fn series_of_other_jobs_and_of_nodes_are_left_out() {
        let wanted: IdRanges = [7, 10, 11, 20, 21].into_iter().collect();
        let samples = |of| Query::Samples { of, series: wanted.clone(), span_ns: 0..9 };
        let ids = |blocks: Vec<RowBlock>| -> Vec<i64> {
            let rows = blocks.into_iter().flat_map(|block| SampleRow::rows(block).unwrap());
            rows.map(|row| row.series_id).collect()
        };
        let owner = Access::Owner(USER);
        assert_eq!(ids(answer(owner, &samples(SeriesOwner::Job(OWN))).0), [10, 11]);
        assert_eq!(ids(answer(owner, &samples(SeriesOwner::Node("n1".to_owned()))).0), [0_i64; 0]);
        assert_eq!(ids(answer(Access::All, &samples(SeriesOwner::Job(OWN))).0), [7, 10, 11, 20, 21]);
        let of_node = Query::Series { of: SeriesOwner::Node("n1".to_owned()) };
        assert!(answer(owner, &of_node).0.is_empty());
        let others = Query::Jobs(JobFilter { owner_uid: Some(1001), ..JobFilter::default() });
        assert!(answer(owner, &others).0.is_empty());
        let (candidates, _) = answer(owner, &queries(OWN)[10]);
        assert_eq!(candidates, [RowBlock::JobIds(vec!["Some(1000)".to_owned()])]);
    }

    #[test]
    fn keys_of_other_jobs_are_removed_from_losses() {
        let (blocks, _) = answer(Access::Owner(USER), &Query::Losses { job_key: OWN });
        let [RowBlock::Losses(rows)] = blocks.as_slice() else { panic!("{blocks:?}") };
        assert_eq!(rows.iter().map(|row| row.job_key).collect::<Vec<_>>(), [Some(OWN), None]);
    }
}
