//! Output to terminals, files and other programs: text made safe, tables, numbers and one-line charts.

pub mod chart;
pub mod layout;
pub mod locale;
pub mod table;
pub mod terminal;

pub use polymeter_proto::units;
pub use polymeter_service::safe_text as printable;
