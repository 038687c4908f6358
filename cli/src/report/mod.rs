//! Report of a job: the choice of the job, and the report as text and as a page.

pub(crate) mod array_text;
pub(crate) mod choice;
pub(crate) mod findings;
pub(crate) mod html;
pub(crate) mod render;
pub(crate) mod step;
pub(crate) mod summary;
