//! Cores that ended jobs used, which do not change any more: lists of jobs ask for them again and again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits;

/// Cores that a job used, in equal parts of its time; NaN in a part without samples.
#[derive(Debug)]
pub(crate) struct Cores(pub(crate) Vec<f64>);

impl Cores {
    /// Mean over the parts with samples; NaN without any.
    pub(crate) fn mean(&self) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for value in self.0.iter().filter(|value| value.is_finite()) {
            sum += value;
            count += 1.0;
        }
        sum / count
    }
}

/// Cores of ended jobs by key. Whoever asks for them must have checked that the user may see the job.
#[derive(Debug, Default)]
pub(crate) struct KeptCores(Mutex<HashMap<i64, Arc<Cores>>>);

impl KeptCores {
    pub(crate) fn get(&self, job_key: i64) -> Option<Arc<Cores>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&job_key).cloned()
    }

    /// Forgets all others if there are too many.
    pub(crate) fn put(&self, job_key: i64, cores: &Arc<Cores>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= limits::KEPT_CORES {
            kept.clear();
        }
        kept.insert(job_key, Arc::clone(cores));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_without_samples_do_not_count() {
        assert_eq!(Cores(vec![1.0, f64::NAN, 2.0]).mean(), 1.5);
        assert!(Cores(vec![f64::NAN]).mean().is_nan() && Cores(Vec::new()).mean().is_nan());
    }

    #[test]
    fn the_number_of_kept_jobs_is_bounded() {
        let kept = KeptCores::default();
        let count = i64::try_from(limits::KEPT_CORES).unwrap();
        (0..=count).for_each(|key| kept.put(key, &Arc::new(Cores(Vec::new()))));
        assert!(kept.get(count).is_some() && kept.get(0).is_none());
    }
}
