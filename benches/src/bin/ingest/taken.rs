//! The cost of storing samples.

use polymeter_benches::table::to_f64;

/// The cost of one run, or the sum over several runs.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) samples: u64,
    pub(crate) seconds: f64,
    pub(crate) collector_cpu_s: f64,
    pub(crate) server_cpu_s: f64,
    pub(crate) bytes: u64,
}

impl Taken {
    pub(crate) fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.seconds += other.seconds;
        self.collector_cpu_s += other.collector_cpu_s;
        self.server_cpu_s += other.server_cpu_s;
        self.bytes += other.bytes;
    }

    pub(crate) fn per_second(&self) -> f64 {
        to_f64(self.samples) / self.seconds
    }
}
