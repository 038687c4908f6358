//! Performance monitoring of GPUs from Hopper on: quantities between two samples.

use nvml_wrapper::Device;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};

use super::quantity::is_unsupported;

/// Last samples of a reader, one for each device of a GPU. Each reader has its own, since the intervals
/// differ.
#[derive(Debug, Default)]
pub(super) struct GpmState {
    last: Vec<Option<GpmSample<'static>>>,
}

impl GpmState {
    /// Takes a sample of a device, and computes the quantities since the last one, in percent. The first
    /// reading has no values. The sample of a MIG device is one of the whole GPU.
    pub(super) fn read(
        &mut self,
        device: usize,
        whole: &Device<'static>,
        instance: Option<u32>,
        ids: &[GpmMetricId],
    ) -> Vec<Result<f64, NvmlError>> {
        self.try_read(device, whole, instance, ids).unwrap_or_else(|error| {
            // An error is reported once, but no device of the GPU has any quantity without the support.
            let is_unsupported = is_unsupported(&error);
            let mut error = Some(error);
            let errors = ids.iter().map(|_| match error.take() {
                Some(error) => Err(error),
                None if is_unsupported => Err(NvmlError::NotSupported),
                None => Err(NvmlError::NoData),
            });
            errors.collect()
        })
    }

    fn try_read(
        &mut self,
        device: usize,
        whole: &Device<'static>,
        instance: Option<u32>,
        ids: &[GpmMetricId],
    ) -> Result<Vec<Result<f64, NvmlError>>, NvmlError> {
        // A GPU without the support of samples may refuse them in other ways.
        if !whole.gpm_support()? {
            return Err(NvmlError::NotSupported);
        }
        let sample = match instance {
            Some(instance) => whole.gpm_mig_sample(instance)?,
            None => whole.gpm_sample()?,
        };
        if self.last.len() <= device {
            self.last.resize_with(device + 1, || None);
        }
        let Some(last) = self.last.get_mut(device) else { return Err(NvmlError::NoData) };
        let Some(before) = last.replace(sample) else { return Err(NvmlError::NoData) };
        let Some(sample) = last else { return Err(NvmlError::NoData) };
        let results = gpm_metrics_get(whole.nvml(), &before, sample, ids)?;
        let percents = results.into_iter().map(|result| match result?.value {
            value if value.is_finite() => Ok(value),
            _ => Err(NvmlError::NoData),
        });
        Ok(percents.collect())
    }
}
