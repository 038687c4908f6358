//! Output to terminals, files and other programs: text made safe, tables, numbers and one-line charts.

pub(crate) mod chart;
#[cfg(feature = "local")]
pub(crate) mod file_name;
pub(crate) mod layout;
#[cfg(feature = "local")]
pub(crate) mod new_file;
#[cfg(feature = "local")]
pub(crate) mod progress;
#[cfg(feature = "local")]
pub(crate) mod style;
pub(crate) mod table;
pub(crate) mod terminal;

pub(crate) use polymeter_proto::units;
pub(crate) use polymeter_service::safe_text as printable;
