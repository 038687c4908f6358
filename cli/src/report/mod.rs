//! The report of a job: the choice of the job, and the report as text.

pub(crate) mod choice;
pub(crate) mod findings;
pub(crate) mod render;
pub(crate) mod step;
