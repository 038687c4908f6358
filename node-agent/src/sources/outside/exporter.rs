//! Exporters of Prometheus and OpenMetrics.

use std::collections::HashMap;
use std::fmt;

use polymeter_proto::catalogue::DeviceValue;
use polymeter_proto::exposition::{
    ExporterPage, ExporterSeries, Format, InvalidSelector, SeriesSelector, TruncatedPage, Wanted,
    catalogue_name,
};
use polymeter_proto::name::MetricName;
use polymeter_proto::series::Kind;

use super::connection::{Connection, DeviceError, Found, Number, VALUES_MAX};
use super::http::{Answer, HttpClient, media_type};
use super::settings::{DeviceMetric, DeviceSettings};
use crate::clock;
use crate::sources::unknown_lines::UnknownLines;

/// Bytes of a page without compression: 50,000 series.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// OpenMetrics first, since its pages state their end.
const ACCEPT: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

const OPEN_METRICS: &str = "application/openmetrics-text";

pub(super) struct Exporter {
    client: HttpClient,
    path: String,
    /// Selectors of the metrics that were searched for last; before, of those of the configuration.
    selectors: Vec<SeriesSelector>,
    /// Times that the exporter has stated of the values read last, by series.
    stated: HashMap<String, i64>,
    refused: UnknownLines,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter")
            .field("client", &self.client)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Exporter {
    /// The path is `/metrics` if the URL states none.
    pub(super) fn new(client: HttpClient, device: &DeviceSettings) -> Result<Self, DeviceError> {
        let path = if matches!(&*device.url.path, "" | "/") { "/metrics" } else { &device.url.path };
        let (selectors, stated) = (selectors(&device.metrics)?, HashMap::new());
        Ok(Self { client, path: path.to_owned(), selectors, stated, refused: UnknownLines::default() })
    }

    fn answer(&mut self) -> Result<Answer, DeviceError> {
        self.client.get(&self.path, ACCEPT, PAGE_BYTES)
    }

    /// Parses a page, and keeps account of what it refuses.
    fn page<'a>(
        &mut self,
        answer: &'a Answer,
        selectors: &[SeriesSelector],
    ) -> Result<ExporterPage<'a>, DeviceError> {
        let page = ExporterPage::read(&answer.body, format(answer), &wanted(selectors));
        self.account(page)
    }

    fn account<'a>(
        &mut self,
        page: Result<ExporterPage<'a>, TruncatedPage>,
    ) -> Result<ExporterPage<'a>, DeviceError> {
        let page = page.map_err(|_truncated| DeviceError::Malformed("its page ends without `# EOF`"))?;
        self.refused = UnknownLines::new(page.refused.all(), page.first_refused);
        Ok(page)
    }
}

fn format(answer: &Answer) -> Format {
    let is_open_metrics = media_type(&answer.headers) == OPEN_METRICS;
    if is_open_metrics { Format::OpenMetrics } else { Format::Text }
}

fn wanted(selectors: &[SeriesSelector]) -> Wanted<'_> {
    Wanted { selectors, series: VALUES_MAX, now_us: clock::realtime_us() }
}

/// Selectors of the metrics, each with the index of its metric. Addresses are checked with the configuration.
fn selectors(metrics: &[DeviceMetric]) -> Result<Vec<SeriesSelector>, DeviceError> {
    let parsed: Result<_, InvalidSelector> = metrics.iter().map(|metric| metric.address.parse()).collect();
    parsed.map_err(|_invalid| DeviceError::Malformed("an address is no name of a series"))
}

impl Connection for Exporter {
    fn find(&mut self, metrics: &[DeviceMetric]) -> Result<Vec<Found>, DeviceError> {
        let selectors = selectors(metrics)?;
        let answer = self.answer()?;
        let page = self.page(&answer, &selectors)?;
        let mut found = Vec::new();
        for (metric, selector) in selectors.iter().enumerate() {
            let selected = page.series.iter().filter(|series| selector.selects(series));
            found.extend(selected.map(|series| found_series(metric, series)));
        }
        self.selectors = selectors;
        Ok(found)
    }

    fn read(&mut self, wanted: &[&str], numbers: &mut [Option<Number>]) -> Result<(), DeviceError> {
        let answer = self.answer()?;
        let mut unread: HashMap<&str, &mut Option<Number>> = wanted.iter().copied().zip(numbers).collect();
        let stated = &mut self.stated;
        let take = |key: &str, value: f64, time_us: Option<i64>| {
            let Some(number) = unread.remove(key) else { return };
            // A value of the same time is the last one again.
            let is_repeated = match time_us {
                Some(time_us) => stated.insert(key.to_owned(), time_us) == Some(time_us),
                None => false,
            };
            *number = (!is_repeated).then_some(Number::Double(value));
        };
        let page =
            ExporterPage::read_values(&answer.body, format(&answer), &self::wanted(&self.selectors), take);
        self.stated.retain(|address, _| !unread.contains_key(address.as_str()));
        self.account(page).map(drop)
    }

    fn offers(&mut self) -> Result<Vec<DeviceMetric>, DeviceError> {
        let answer = self.answer()?;
        let page = self.page(&answer, &[])?;
        let mut names: Vec<&str> = page.series.iter().map(|series| series.name).collect();
        names.dedup();
        let metric = |name: &str| {
            let words = MetricName::new(catalogue_name(name)).ok()?;
            Some(DeviceMetric::new(words, name.to_owned()))
        };
        Ok(names.into_iter().filter_map(metric).collect())
    }

    fn unknown_lines(&self) -> UnknownLines {
        self.refused.clone()
    }
}

fn found_series(metric: usize, series: &ExporterSeries<'_>) -> Found {
    let labels = series.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    Found {
        metric,
        address: series.key(),
        labels: labels.collect(),
        unit: series.unit,
        of_type: match series.kind {
            Kind::Counter => DeviceValue::Sum,
            Kind::Gauge => DeviceValue::Gauge,
        },
        factor: series.factor,
    }
}
