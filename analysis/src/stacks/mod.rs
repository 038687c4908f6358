//! Call stacks: the functions in which a job spent its time. Pure, except for [`profile`], [`Missing`] and
//! `report`.
//!
//! ```text
//! stack nodes (a tree by ids) -> Stacks ─┐
//! (stack, samples, time) rows ───────────┴> Tree -> functions, difference, collapsed, pprof, Firefox, page
//! ```

pub mod activities;
mod collapsed;
mod difference;
mod firefox;
mod functions;
mod imbalance;
mod missing;
mod page_data;
mod pprof;
pub mod profile;
pub(crate) mod report;
mod stack_names;
mod tree;

pub use self::collapsed::{collapsed, folded};
pub use self::difference::{Change, Difference, FunctionChange};
pub use self::firefox::{Process, firefox};
pub use self::functions::{FunctionTime, functions};
pub use self::missing::Missing;
pub use self::page_data::page_data;
pub use self::pprof::pprof;
pub use self::report::{remarks_before, summary};
pub use self::stack_names::{Function, Stacks};
pub use self::tree::{Node, Tree, Weight};
