//! Pages of exporters: each line is an event or a fault, what a sample says can be written and read again, and
//! all that is taken of a page is within its limits.

use std::collections::BTreeSet;

use polymeter_proto::exposition::{Event, ExporterPage, ExporterSeries, Format, Parser, Sample, Wanted};

const SERIES: usize = 8;

pub fn body(data: &[u8]) {
    for format in [Format::Text, Format::OpenMetrics] {
        check_events(data, format);
        check_page(data, format);
    }
}

fn check_events(data: &[u8], format: Format) {
    let lines = data.split(|byte| *byte == b'\n').count();
    let (mut last, mut items) = (0, 0);
    for item in Parser::new(data, format) {
        items += 1;
        match item {
            Ok(Event::Sample(sample)) => check_sample(&sample, format),
            Ok(Event::Kind { .. } | Event::Help { .. }) => {}
            Err(fault) => {
                assert!(fault.line >= last && fault.line <= lines as u64, "{fault}");
                last = fault.line;
            }
        }
    }
    assert!(items <= lines + 1);
}

fn check_sample(sample: &Sample<'_>, format: Format) {
    let mut text = format!("{}{{", sample.name);
    for (name, value) in &sample.labels {
        let value = value.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"");
        text.push_str(&format!("{name}=\"{value}\","));
    }
    text.push_str(&format!("}} {}", sample.value));
    let again = Parser::new(text.as_bytes(), format).next();
    let Some(Ok(Event::Sample(again))) = again else { panic!("{text}: {again:?}") };
    assert_eq!((again.name, &again.labels), (sample.name, &sample.labels));
    assert!(again.value == sample.value || (again.value.is_nan() && sample.value.is_nan()));
}

fn check_page(data: &[u8], format: Format) {
    let wanted = Wanted { selectors: &[], series: SERIES, now_us: 1_700_000_000_000_000 };
    let Ok(page) = ExporterPage::read(data, format, &wanted) else { return };
    assert!(page.series.len() <= SERIES);
    for series in &page.series {
        assert!((series.value * series.factor).is_finite() && series.factor > 0.0);
        assert!(series.labels.iter().all(|(_, text)| !text.is_empty()));
    }
    assert!(page.series.is_sorted_by(|one, next| (one.name, &one.labels) < (next.name, &next.labels)));
    let keys: BTreeSet<String> = page.series.iter().map(ExporterSeries::key).collect();
    assert_eq!(keys.len(), page.series.len());
}
