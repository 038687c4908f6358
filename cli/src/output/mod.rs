//! Output to terminals, files and other programs: that of the client, curves, colours and new files.

pub(crate) mod file_name;
pub(crate) mod new_file;
pub(crate) mod progress;
pub(crate) mod sparkline;
pub(crate) mod style;

pub(crate) use polymeter_client::output::{layout, printable, table, terminal, units};
