//! Text of metrics that Prometheus and its relatives write and read: names, pages in both formats, a parser,
//! and the series of exporters in the units of the catalogue.

mod exporter;
mod families;
mod names;
mod page;
mod parser;

pub use self::exporter::{
    ExporterPage, ExporterSeries, InvalidSelector, Refused, SeriesSelector, TruncatedPage, Wanted,
};
pub use self::families::catalogue_name;
pub use self::names::{JOB_INFO, LabelSet, Part, divisor, metric_name, unit_suffix};
pub use self::page::{Format, Page};
pub use self::parser::{Event, FamilyKind, Fault, InvalidText, Parser, Sample};
