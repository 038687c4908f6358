//! The experiment of how much a command slows down while it is watched: what is run, in which order, and what it showed.

pub mod design;
pub mod kernel;
pub mod report;
pub mod results;
