//! Output to terminals, files and other programs: text made safe, tables, numbers and one-line charts.

pub(crate) mod chart;
pub(crate) mod layout;
pub(crate) mod printable;
pub(crate) mod table;
pub(crate) mod terminal;

pub(crate) use polymeter_proto::units;
