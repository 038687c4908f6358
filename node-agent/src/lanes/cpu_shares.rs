//! Division of the agent's CPU time among its jobs. Pure: the caller reads the clocks.
//!
//! The CPU time since the last division, of all threads, is divided in proportion to the time that the reads
//! of each job's sources took since then: the wake-ups, the encoding and the transmission are shared as the
//! reads are. The rest belongs to the node: the reads of the node's own sources and of closed sources, and
//! the time without any read. So the parts of the jobs and of the node add up to the agent's CPU time.
//!
//! Nothing is counted for this at a read: the sampler knows the cost of all reads of each source.

use super::active_source::ActiveSource;

/// Shortest time between two divisions, since each visits all sources.
const INTERVAL_NS: u64 = 10_000_000;

#[derive(Debug, Default)]
pub(super) struct CpuShares {
    /// CPU time that was divided so far.
    divided_ns: u64,
    /// Part of it that belongs to the node.
    node_ns: u64,
    /// Time of closed sources since the last division.
    closed_ns: u64,
    at_ns: Option<u64>,
}

impl CpuShares {
    pub(super) fn new(cpu_ns: u64) -> Self {
        Self { divided_ns: cpu_ns, ..Self::default() }
    }

    pub(super) fn are_due(&self, now_ns: u64) -> bool {
        self.at_ns.is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= INTERVAL_NS)
    }

    /// Divides the CPU time since the last division, where `cpu_ns` is the CPU time of the agent. Does not
    /// allocate.
    pub(super) fn divide(&mut self, sources: &mut [Option<Box<ActiveSource>>], cpu_ns: u64, now_ns: u64) {
        let new_ns = cpu_ns.saturating_sub(self.divided_ns);
        let all_ns =
            sources.iter().flatten().map(|source| source.uncharged_ns()).sum::<u64>() + self.closed_ns;
        let mut jobs_ns = 0;
        for source in sources.iter_mut().flatten() {
            let share_ns = share(new_ns, source.uncharged_ns(), all_ns);
            if let Some(account) = source.charge() {
                account.add(share_ns);
                jobs_ns += share_ns;
            }
        }
        self.node_ns += new_ns.saturating_sub(jobs_ns);
        self.divided_ns = self.divided_ns.max(cpu_ns);
        self.closed_ns = 0;
        self.at_ns = Some(now_ns);
    }

    /// Counts the reads of a source that is closed: what is not charged yet belongs to the node.
    pub(super) fn close(&mut self, source: &ActiveSource) {
        self.closed_ns += source.uncharged_ns();
    }
}

/// Returns `part / all` of `total`, rounded down.
fn share(total: u64, part: u64, all: u64) -> u64 {
    let product = u128::from(total) * u128::from(part);
    product.checked_div(u128::from(all)).and_then(|share| u64::try_from(share).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::counters::CpuAccount;
    use crate::lanes::SourceKey;
    use crate::sources::Source;

    fn source(account: Option<&Arc<CpuAccount>>, read_ns: u64) -> Option<Box<ActiveSource>> {
        let key = Arc::new(SourceKey { job: None, name: "test".try_into().unwrap() });
        let source = ActiveSource::new(key, Source::user_supplied(), Vec::new());
        let mut source = source.with_cpu_account(account.cloned());
        source.cost.add_read(read_ns);
        Some(Box::new(source))
    }

    #[test]
    fn jobs_get_cpu_time_as_their_reads_took_time() {
        let (fast, slow) = (Arc::<CpuAccount>::default(), Arc::<CpuAccount>::default());
        let mut sources = [
            source(Some(&fast), 600),
            None,
            source(Some(&slow), 100),
            source(Some(&fast), 200),
            source(None, 100),
        ];
        let mut shares = CpuShares::new(5_000);
        shares.divide(&mut sources, 25_000, 1);
        assert_eq!((fast.total_ns(), slow.total_ns(), shares.node_ns), (16_000, 2_000, 2_000));
        // Only reads since then count.
        sources[2].as_mut().unwrap().cost.add_read(50);
        shares.divide(&mut sources, 26_000, 2);
        assert_eq!((fast.total_ns(), slow.total_ns(), shares.node_ns), (16_000, 3_000, 2_000));
        // Time without reads is the node's.
        shares.divide(&mut sources, 26_500, 3);
        assert_eq!((fast.total_ns(), slow.total_ns(), shares.node_ns), (16_000, 3_000, 2_500));
    }

    #[test]
    fn reads_of_closed_sources_are_charged_to_nobody_else() {
        let job = Arc::<CpuAccount>::default();
        let (mut sources, mut shares) = ([source(Some(&job), 100)], CpuShares::default());
        shares.close(source(Some(&job), 300).as_ref().unwrap());
        shares.divide(&mut sources, 4_000, 1);
        assert_eq!((job.total_ns(), shares.node_ns), (1_000, 3_000));
    }

    #[test]
    fn a_source_that_replaces_another_is_not_charged_again() {
        let job = Arc::<CpuAccount>::default();
        let (mut sources, mut shares) = ([source(Some(&job), 100), source(None, 100)], CpuShares::default());
        shares.divide(&mut sources, 200, 1);
        let mut anew = source(Some(&job), 0).unwrap();
        anew.continue_from(sources[0].as_mut().unwrap());
        sources[0] = Some(anew);
        sources[1].as_mut().unwrap().cost.add_read(100);
        shares.divide(&mut sources, 400, 2);
        assert_eq!((job.total_ns(), shares.node_ns), (100, 300));
    }

    proptest! {
        #[test]
        fn the_parts_add_up_to_the_whole(
            rounds in prop::collection::vec((any::<u32>(), prop::collection::vec(0..u64::from(u32::MAX), 4)), 1..50)
        ) {
            let jobs: [Arc<CpuAccount>; 3] = std::array::from_fn(|_| Arc::default());
            let mut sources: Vec<_> = jobs.iter().map(Some).chain([None]).map(|job| source(job, 0)).collect();
            let (mut shares, mut cpu_ns) = (CpuShares::new(7), 7);
            for (spent_ns, reads) in rounds {
                cpu_ns += u64::from(spent_ns);
                for (source, read_ns) in sources.iter_mut().flatten().zip(reads) {
                    source.cost.add_read(read_ns);
                }
                shares.divide(&mut sources, cpu_ns, 0);
                let of_jobs: u64 = jobs.iter().map(|job| job.total_ns()).sum();
                prop_assert_eq!(of_jobs + shares.node_ns, cpu_ns - 7);
            }
        }
    }
}
