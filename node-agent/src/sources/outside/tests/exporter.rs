//! Exporters: series that come and go, both formats, and what is refused.

use polymeter_proto::catalogue::DeviceValue;
use polymeter_proto::series::Unit;

use super::super::connection::VALUES_MAX;
use super::{Asked, Server};
use crate::clock;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[test]
fn each_metric_has_the_series_of_its_address() {
    let server = Server::start();
    server.page(
        "# TYPE cpu_seconds_total counter\ncpu_seconds_total{cpu=\"0\",mode=\"idle\"} 1.5\n\
         cpu_seconds_total{cpu=\"0\",mode=\"user\"} 2\ncpu_seconds_total{cpu=\"1\",mode=\"idle\"} 3\nload1 0.25\n",
    );
    let addresses = ["cpu_seconds_total{mode=\"idle\"}", "load1", "missing"];
    let mut exporter = server.device("", &addresses);
    let found = exporter.find().unwrap();
    assert_eq!(Asked::labels(&found), ["cpu=0,mode=idle", "cpu=1,mode=idle", ""]);
    let types: Vec<_> =
        found.iter().map(|found| (found.metric, found.unit, found.of_type, found.factor)).collect();
    let cpu = (0, Unit::Nanoseconds, DeviceValue::Sum, 1e9);
    assert_eq!(types, [cpu, cpu, (1, Unit::Count, DeviceValue::Gauge, 1.0)]);
    assert_eq!(exporter.read(&found).unwrap(), [Some(1.5), Some(3.0), Some(0.25)]);
    assert!(server.heads.lock().unwrap()[0].starts_with("get /metrics http/1.1\r\n"));
}

#[test]
fn a_series_that_is_no_longer_in_the_page_is_absent() {
    let server = Server::start();
    server.page("a{x=\"1\"} 1\na{x=\"2\"} 2\n");
    let mut exporter = server.device("/metrics", &["a"]);
    let found = exporter.find().unwrap();
    server.page("a{x=\"2\"} 3\na{x=\"3\"} 4\n");
    assert_eq!(exporter.read(&found).unwrap(), [None, Some(3.0)]);
    server.page("a{x=\"1\"} NaN\na{x=\"2\"} +Inf\n");
    assert_eq!(exporter.read(&found).unwrap(), [None, None]);
    server.page("");
    assert_eq!(exporter.read(&found).unwrap(), [None, None]);
    server.page("a{x=\"1\"} 5\na{x=\"2\"} 6\n");
    assert_eq!(exporter.read(&found).unwrap(), [Some(5.0), Some(6.0)]);
    let lines: String = (0..VALUES_MAX).map(|number| format!("_{number} 1\n")).collect();
    server.page(format!("{lines}a{{x=\"1\"}} 7\n"));
    let mut anew = server.device("/metrics", &["a"]);
    assert_eq!(anew.read(&found).unwrap(), [Some(7.0), None], "a new connection reads before it searches");
}

#[test]
fn a_value_with_a_time_of_its_own_is_read_once() {
    let server = Server::start();
    let now_ms = clock::realtime_us() / 1000;
    let page = |ms: i64| format!("a 1 {ms}\nb 1\nc 1 0\n");
    server.page(page(now_ms - 2000));
    let mut exporter = server.device("", &["a", "b", "c"]);
    let found = exporter.find().unwrap();
    assert_eq!(found.len(), 2, "one is of 1970");
    assert_eq!(exporter.read(&found).unwrap(), [Some(1.0), Some(1.0)]);
    assert_eq!(exporter.read(&found).unwrap(), [None, Some(1.0)]);
    server.page(page(now_ms - 1000));
    assert_eq!(exporter.read(&found).unwrap(), [Some(1.0), Some(1.0)]);
    assert_eq!(exporter.connection.unknown_lines().lines, 1);
}

#[test]
fn openmetrics_is_read_to_its_end() {
    let server = Server::start();
    server.answer("/metrics", OPEN_METRICS, "# TYPE a counter\na_total 7\n# EOF\n");
    let mut exporter = server.device("", &["a_total"]);
    let found = exporter.find().unwrap();
    assert_eq!((found[0].of_type, exporter.read(&found).unwrap()), (DeviceValue::Sum, vec![Some(7.0)]));
    server.answer("/metrics", OPEN_METRICS, "# TYPE a counter\na_total 7\n");
    let error = exporter.read(&found).unwrap_err().to_string();
    assert!(error.contains("# EOF"), "{error}");
}

#[test]
fn what_a_page_has_beyond_the_bounds_is_counted() {
    let server = Server::start();
    let lines: String = (0..VALUES_MAX + 3).map(|number| format!("a{{x=\"{number}\"}} 1\n")).collect();
    server.page(format!("{lines}b 1\nb 2\nb b\n"));
    let mut exporter = server.device("", &["a"]);
    assert_eq!(exporter.find().unwrap().len(), VALUES_MAX);
    let refused = exporter.connection.unknown_lines();
    assert_eq!((refused.lines, refused.first.as_str()), (4, "a"));
    let mut exporter = server.device("", &["b"]);
    let found = exporter.find().unwrap();
    assert_eq!(exporter.read(&found).unwrap(), [Some(1.0)], "the first of two");
    let refused = exporter.connection.unknown_lines();
    assert_eq!((refused.lines, refused.first.as_str()), (2, "b b"));
}

#[test]
fn what_is_no_page_of_metrics_has_no_values() {
    let server = Server::start();
    server.answer("/metrics", "text/html", "<html>\n<body>Log in</body>\n</html>\n");
    let mut exporter = server.device("", &["a"]);
    assert_eq!(exporter.find().unwrap(), []);
    assert_eq!(exporter.connection.unknown_lines().lines, 3);
}

#[test]
fn an_exporter_offers_all_its_names() {
    let server = Server::start();
    server.page("cpu_seconds_total{cpu=\"0\"} 1\ncpu_seconds_total{cpu=\"1\"} 1\nDCGM_FI_DEV_GPU_TEMP 40\n");
    let offers = server.device("", &[]).connection.offers().unwrap();
    let names: Vec<_> = offers.iter().map(|metric| (metric.name.as_str(), metric.address.as_str())).collect();
    assert_eq!(names, [("dcgm_fi_dev_gpu_temp", "DCGM_FI_DEV_GPU_TEMP"), ("cpu_total", "cpu_seconds_total")]);
}
