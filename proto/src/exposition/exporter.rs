//! Pages of exporters as series in the units of the catalogue.

use std::collections::HashSet;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;

use super::families::Families;
use super::page::Format;
use super::parser::{Event, Fault, InvalidText, Parser, Sample};
use crate::limits::LABELS;
use crate::series::{InvalidIdentifier, JOB_CLUSTER_LABEL, JOB_LABEL, Kind, Labels, Unit};

/// Oldest value that is taken, as in queries of Prometheus. An exporter that shows older ones repeats what it
/// once knew.
const STATED_AGE_US: i64 = 300_000_000;

/// Clocks of exporters may be ahead by this much.
const STATED_AHEAD_US: i64 = 10_000_000;

/// Labels of the configuration: the device, and the node and the job that it serves, whose users see the
/// series. Labels of an exporter with these names get the prefix `exported_`, as in Prometheus.
const CONFIGURED: [&str; 4] = ["device", "node", JOB_LABEL, JOB_CLUSTER_LABEL];

/// Choice of the series of a page: `node_cpu_seconds_total`, or `node_cpu_seconds_total{mode="idle"}` for those
/// with these labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesSelector {
    name: String,
    labels: Labels,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected the name of a series such as node_load1 or node_cpu_seconds_total{{mode=\"idle\"}}, found `{0}`"
)]
pub struct InvalidSelector(String);

impl FromStr for SeriesSelector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        let line = format!("{text} 0");
        let mut events = Parser::new(line.as_bytes(), Format::Text);
        let (Some(Ok(Event::Sample(sample))), None) = (events.next(), events.next()) else {
            return Err(InvalidSelector(text.to_owned()));
        };
        // `a 1` would be a sample with a time, and an empty value would select all.
        let is_whole = |labels: &Labels| labels.len() == sample.labels.len() && sample.time_us.is_none();
        let labels = labels(&sample).ok().filter(is_whole);
        let labels = labels.ok_or_else(|| InvalidSelector(text.to_owned()))?;
        Ok(Self { name: sample.name.to_owned(), labels })
    }
}

impl SeriesSelector {
    pub fn selects(&self, series: &ExporterSeries<'_>) -> bool {
        self.name == series.name
            && self.labels.iter().all(|(key, value)| series.labels.get(key) == Some(value))
    }
}

/// Which series of a page are taken.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// All series if it is empty.
    pub selectors: &'a [SeriesSelector],
    pub series: usize,
    /// Time of the scrape.
    pub now_us: i64,
}

impl Wanted<'_> {
    const fn is_timely(&self, time_us: i64) -> bool {
        let age_us = self.now_us.saturating_sub(time_us);
        -STATED_AHEAD_US <= age_us && age_us <= STATED_AGE_US
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ExporterSeries<'a> {
    pub name: &'a str,
    pub labels: Labels,
    /// Unit of the value times `factor`.
    pub unit: Unit,
    pub kind: Kind,
    pub factor: f64,
    /// Finite, as the page states it.
    pub value: f64,
    /// Time that the exporter states, near the scrape's.
    pub time_us: Option<i64>,
}

impl<'a> ExporterSeries<'a> {
    /// Series whose unit and kind are not known yet.
    const fn undescribed(sample: &Sample<'a>, labels: Labels) -> Self {
        let Sample { name, value, time_us, .. } = *sample;
        Self { name, labels, unit: Unit::Count, kind: Kind::Gauge, factor: 1.0, value, time_us }
    }

    /// Name and labels in one text, which a series keeps from page to page.
    pub fn key(&self) -> String {
        let mut key = String::new();
        self.write_key(&mut key);
        key
    }

    fn write_key(&self, key: &mut String) {
        key.push_str(self.name);
        key.push('{');
        for (name, value) in self.labels.iter() {
            // Writing to a string cannot fail.
            write!(key, "{name}={value:?},").ok();
        }
        key.push('}');
    }

    fn identity(&self) -> (&str, &Labels) {
        (self.name, &self.labels)
    }
}

/// Samples of a page that are not taken. Values that are no number are absent, and not among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// Lines that are no sample, and labels that no series can have.
    pub invalid: u64,
    pub over_limit: u64,
    /// Samples of series that the page has already.
    pub repeated: u64,
    /// Values whose stated time is far from the scrape's.
    pub untimely: u64,
}

impl Refused {
    pub const fn all(&self) -> u64 {
        self.invalid + self.over_limit + self.repeated + self.untimely
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExporterPage<'a> {
    /// Sorted by name and labels, each series once.
    pub series: Vec<ExporterSeries<'a>>,
    pub refused: Refused,
    /// Line or name of the first that was refused, for a message.
    pub first_refused: Option<&'a [u8]>,
    /// Samples that were taken, also those of series that the page has already.
    admitted: usize,
}

/// It ends without `# EOF`. Its last series would look as if they had ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the page ends without `# EOF`, so that it is incomplete")]
pub struct TruncatedPage;

impl<'a> ExporterPage<'a> {
    /// Reads a whole page. The memory that it takes is bounded by the number of wanted series.
    pub fn read(text: &'a [u8], format: Format, wanted: &Wanted<'_>) -> Result<Self, TruncatedPage> {
        let mut families = Families::default();
        let mut series = Vec::new();
        let mut page = Self::parse(text, format, |page, event| match event {
            Event::Kind { family, kind } => families.note_kind(family, wanted.series, kind),
            Event::Help { family, text } => families.note_help(family, wanted.series, text),
            Event::Sample(sample) => series.extend(page.admit(&sample, wanted)),
        })?;
        // Types may be stated behind the samples.
        for series in &mut series {
            ((series.unit, series.factor), series.kind) = families.describe(series.name);
        }
        series.sort_by(|one, other| one.identity().cmp(&other.identity()));
        let all = series.len();
        series.dedup_by(|later, earlier| later.identity() == earlier.identity());
        page.refused.repeated += count(all - series.len());
        // The exporter has no value now.
        series.retain(|series| (series.value * series.factor).is_finite());
        Ok(Self { series, ..page })
    }

    /// Calls `take` with the key, the value and the stated time of each wanted series, and keeps none of them:
    /// an agent may read a thousand pages at once. Values that are no number are absent. Units and kinds are
    /// not looked at.
    pub fn read_values(
        text: &'a [u8],
        format: Format,
        wanted: &Wanted<'_>,
        mut take: impl FnMut(&str, f64, Option<i64>),
    ) -> Result<Self, TruncatedPage> {
        let (mut key, hasher) = (String::new(), RandomState::new());
        let mut seen: HashSet<u64> = HashSet::new();
        Self::parse(text, format, |page, event| {
            let Event::Sample(sample) = event else { return };
            let Some(series) = page.admit(&sample, wanted) else { return };
            key.clear();
            series.write_key(&mut key);
            if !seen.insert(hasher.hash_one(&key)) {
                page.refused.repeated += 1;
            } else if series.value.is_finite() {
                take(&key, series.value, series.time_us);
            }
        })
    }

    /// Calls `each` with what the page states, and counts invalid lines.
    fn parse(
        text: &'a [u8],
        format: Format,
        mut each: impl FnMut(&mut Self, Event<'a>),
    ) -> Result<Self, TruncatedPage> {
        let mut page = Self::default();
        let text = match format {
            Format::Text => page.whole_lines(text),
            Format::OpenMetrics => text,
        };
        for item in Parser::new(text, format) {
            match item {
                Ok(event) => each(&mut page, event),
                Err(Fault { fault: InvalidText::NoEnd, .. }) => return Err(TruncatedPage),
                Err(Fault { line, .. }) => {
                    page.refused.invalid += 1;
                    if page.first_refused.is_none() {
                        page.first_refused = nth_line(text, line);
                    }
                }
            }
        }
        Ok(page)
    }

    /// Text up to its last line feed, which ends each line: what follows may be half a value.
    fn whole_lines(&mut self, text: &'a [u8]) -> &'a [u8] {
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (whole, rest) = text.split_at_checked(end).unwrap_or((text, &[]));
        if !rest.is_empty() {
            self.refused.invalid += 1;
            self.first_refused = Some(rest);
        }
        whole
    }

    /// Returns the series of a sample that is wanted, or counts why it is refused.
    fn admit(&mut self, sample: &Sample<'a>, wanted: &Wanted<'_>) -> Option<ExporterSeries<'a>> {
        let selectors = wanted.selectors;
        if !selectors.is_empty() && selectors.iter().all(|selector| selector.name != sample.name) {
            return None;
        }
        let refused = match labels(sample) {
            Err(_) => &mut self.refused.invalid,
            Ok(labels) => {
                let series = ExporterSeries::undescribed(sample, labels);
                if !selectors.is_empty() && !selectors.iter().any(|selector| selector.selects(&series)) {
                    return None;
                }
                if series.time_us.is_some_and(|time_us| !wanted.is_timely(time_us)) {
                    &mut self.refused.untimely
                } else if self.admitted >= wanted.series {
                    &mut self.refused.over_limit
                } else {
                    self.admitted += 1;
                    return Some(series);
                }
            }
        };
        *refused += 1;
        self.first_refused.get_or_insert(sample.name.as_bytes());
        None
    }
}

/// An empty value is the same as no label. There is room for the label of the device.
fn labels(sample: &Sample<'_>) -> Result<Labels, InvalidIdentifier> {
    let pairs = sample.labels.iter().filter(|(_, value)| !value.is_empty());
    let pairs = pairs.map(|(name, value)| {
        let name = if CONFIGURED.contains(name) { format!("exported_{name}") } else { (*name).to_owned() };
        (name, value.clone().into_owned())
    });
    let labels = Labels::escaped(pairs.collect())?;
    if labels.len() < LABELS { Ok(labels) } else { Err(InvalidIdentifier::TooManyLabels) }
}

/// Line by its number, from 1 on.
fn nth_line(text: &[u8], line: u64) -> Option<&[u8]> {
    let index = usize::try_from(line).ok()?.checked_sub(1)?;
    text.split(|byte| *byte == b'\n').nth(index)
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &[u8] = include_bytes!("../../../e2e/fuzz/corpus/exposition/node_exporter");
    const DCGM: &[u8] = include_bytes!("../../../e2e/fuzz/corpus/exposition/dcgm");
    const LUSTRE: &[u8] = include_bytes!("../../../e2e/fuzz/corpus/exposition/lustre");
    const IPMI: &[u8] = include_bytes!("../../../e2e/fuzz/corpus/exposition/ipmi");
    const OPEN_METRICS: &[u8] = include_bytes!("../../../e2e/fuzz/corpus/exposition/openmetrics");

    const NOW_US: i64 = 1_700_000_000_000_000;
    const ALL: Wanted<'_> = Wanted { selectors: &[], series: 1000, now_us: NOW_US };

    fn page<T: AsRef<[u8]> + ?Sized>(text: &T) -> ExporterPage<'_> {
        ExporterPage::read(text.as_ref(), Format::Text, &ALL).unwrap()
    }

    /// Unit, kind and value of the first series with a name.
    fn found(page: &ExporterPage<'_>, name: &str) -> Option<(Unit, Kind, f64)> {
        let series = page.series.iter().find(|series| series.name == name)?;
        Some((series.unit, series.kind, series.value * series.factor))
    }

    #[test]
    fn series_of_node_exporter_have_the_units_of_the_catalogue() {
        let page = page(NODE);
        assert_eq!(page.refused, Refused::default());
        for (name, unit, kind, value) in [
            ("node_cpu_seconds_total", Unit::Nanoseconds, Kind::Counter, 362_812.78e9),
            ("node_filesystem_avail_bytes", Unit::Bytes, Kind::Gauge, 64_212_455_424.0),
            ("go_gc_duration_seconds", Unit::Nanoseconds, Kind::Gauge, 49_351.0),
            ("go_gc_duration_seconds_sum", Unit::Nanoseconds, Kind::Counter, 9_000_000.0),
            ("go_gc_duration_seconds_count", Unit::Count, Kind::Counter, 42.0),
            ("node_textfile_mtime_seconds", Unit::Nanoseconds, Kind::Gauge, 1.64e18),
            ("node_load1", Unit::Count, Kind::Gauge, 0.21),
        ] {
            let (of_unit, of_kind, of_value) = found(&page, name).expect(name);
            assert_eq!((of_unit, of_kind), (unit, kind), "{name}");
            assert!((of_value / value - 1.0).abs() < 1e-12, "{name}: {of_value}");
        }
        let mount = page.series.iter().find_map(|value| value.labels.get("mountpoint"));
        assert_eq!(mount, Some("/a \"b\" \\ c\\x0ad"));
        assert_eq!(found(&page, "node_hwmon_temp_crit_celsius"), None, "no number");
        assert_eq!(found(&page, "node_hwmon_temp_max_celsius"), None, "infinite");
    }

    #[test]
    fn series_of_other_exporters_have_the_units_of_the_catalogue() {
        let gpu = page(DCGM);
        let joules = found(&gpu, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION");
        assert_eq!(joules, Some((Unit::Joules, Kind::Counter, 27_346_811.123)));
        let clock = found(&gpu, "DCGM_FI_DEV_SM_CLOCK");
        assert_eq!(clock, Some((Unit::Hertz, Kind::Gauge, 1.41e9)));
        let ipmi = page(IPMI);
        let power = found(&ipmi, "ipmi_dcmi_power_consumption_watts");
        assert_eq!(power, Some((Unit::Watts, Kind::Gauge, 184.0)));
        let fan = found(&ipmi, "ipmi_fan_speed_rpm");
        assert_eq!(fan, Some((Unit::RevolutionsPerMinute, Kind::Gauge, 4560.0)));
        let lustre = page(LUSTRE);
        let read = found(&lustre, "lustre_job_read_bytes_total");
        assert_eq!(read, Some((Unit::Bytes, Kind::Counter, 18_446_744_073_709_551_616.0)));
    }

    #[test]
    fn families_of_openmetrics_have_shorter_names_than_their_samples() {
        let wanted = Wanted { now_us: 1_700_000_000_000_000, ..ALL };
        let page = ExporterPage::read(OPEN_METRICS, Format::OpenMetrics, &wanted).unwrap();
        assert_eq!(found(&page, "a_seconds_total"), Some((Unit::Nanoseconds, Kind::Counter, 17e9)));
        assert_eq!(found(&page, "a_seconds_created"), Some((Unit::Nanoseconds, Kind::Gauge, 1.5e18)));
        assert_eq!(found(&page, "h_bucket"), Some((Unit::Count, Kind::Counter, 8.0)));
        assert_eq!(found(&page, "build_info"), Some((Unit::Count, Kind::Gauge, 1.0)));
        let total = page.series.iter().find(|value| value.name == "a_seconds_total").unwrap();
        assert_eq!(total.time_us, Some(1_700_000_000_250_000));
        assert_eq!(page.refused.untimely, 1, "a bucket of 1970");
        let cut = OPEN_METRICS.strip_suffix(b"# EOF\n").unwrap();
        assert_eq!(ExporterPage::read(cut, Format::OpenMetrics, &wanted), Err(TruncatedPage));
    }

    #[test]
    fn types_and_helps_may_follow_the_samples() {
        let page = page("x 3\n# HELP x Power draw (in W).\n# TYPE x counter\ny_total 1\nz 1\n");
        assert_eq!(found(&page, "x"), Some((Unit::Watts, Kind::Counter, 3.0)));
        assert_eq!(found(&page, "y_total"), Some((Unit::Count, Kind::Counter, 1.0)));
        assert_eq!(found(&page, "z"), Some((Unit::Count, Kind::Gauge, 1.0)));
    }

    #[test]
    fn a_repeated_series_has_its_first_value() {
        let page = page("a{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 2\na{x=\"1\",y=\"2\",z=\"\"} 3\na 4\n");
        let values: Vec<f64> = page.series.iter().map(|value| value.value).collect();
        assert_eq!((values.as_slice(), page.refused.repeated), (&[4.0, 1.0][..], 2));
    }

    #[test]
    fn values_of_another_time_are_refused() {
        let ms = NOW_US / 1000;
        let text = format!(
            "a 1 {}\nb 1 {}\nc 1 {}\nd 1 {}\ne 1 0\n",
            ms - 300_000,
            ms - 300_001,
            ms + 10_000,
            ms + 10_001
        );
        let page = page(&text);
        let names: Vec<&str> = page.series.iter().map(|value| value.name).collect();
        assert_eq!((names.as_slice(), page.refused.untimely), (&["a", "c"][..], 3));
    }

    #[test]
    fn series_are_selected_and_bounded() {
        let selectors = ["a", "b{x=\"1\"}"].map(|text| text.parse::<SeriesSelector>().unwrap());
        let wanted = Wanted { selectors: &selectors, series: 3, now_us: NOW_US };
        let text = b"a{y=\"1\"} 1\nab 1\nb 1\nb{x=\"2\"} 1\nb{x=\"1\",z=\"1\"} 1\na 1\na{y=\"2\"} 1\n";
        let page = ExporterPage::read(text, Format::Text, &wanted).unwrap();
        let keys: Vec<String> = page.series.iter().map(ExporterSeries::key).collect();
        assert_eq!(keys, ["a{}", "a{y=\"1\",}", "b{x=\"1\",z=\"1\",}"]);
        assert_eq!(page.refused, Refused { over_limit: 1, ..Refused::default() });
        for wrong in ["", "1", "a 1", "a{x}", "a{x=\"\"}", "a{x=\"1\"} 2", "a\nb", "# TYPE a"] {
            assert!(wrong.parse::<SeriesSelector>().is_err(), "{wrong}");
        }
        let labels = |count| (0..count).map(|at| format!("l{at}=\"1\"")).collect::<Vec<_>>().join(",");
        let text = format!("a{{{}}} 1\na{{{}}} 1\n", labels(15), labels(16));
        let page = self::page(&text);
        assert_eq!((page.series.len(), page.refused.invalid), (1, 1));
    }

    #[test]
    fn a_label_device_is_that_of_the_exporter() {
        let page = page("a{device=\"sda\"} 1\n");
        assert_eq!(page.series[0].labels.get("exported_device"), Some("sda"));
    }

    #[test]
    fn a_line_that_is_cut_off_has_no_value() {
        let page = page("a 1\nb 12");
        assert_eq!((page.series.len(), page.refused.invalid), (1, 1));
        let html = self::page("<html>\n<body>no metrics</body>\n</html>\n");
        assert_eq!((html.series.len(), html.refused.invalid), (0, 3));
        assert_eq!(html.first_refused, Some(&b"<html>"[..]));
    }
}
