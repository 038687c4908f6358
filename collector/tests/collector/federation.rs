//! Tests of the page `/federate`: the newest values of all nodes, for who may read them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use polymeter_collector::federation::{FederationConfig, PageAddress};
use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::ledger::Event;
use polymeter_proto::series::JobHandle;
use polymeter_store::reader::SeriesScope;
use polymeter_test_harness::skip;

use crate::support::agent::Agent;
use crate::support::http::{Request, Response, receive};
use crate::support::openmetrics::Page;
use crate::support::reading::connect_as;
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

polymeter_test_harness::tests![
    the_page_has_the_newest_values_of_the_store_until_the_job_ends,
    others_are_refused,
    promtool_finds_no_fault,
];

const OPEN_METRICS: &str = "Accept: application/openmetrics-text; version=1.0.0\r\n";

/// `{node=~"n."}`
const ALL: &str = "/federate?match[]=%7Bnode%3D~%22n.%22%7D";

/// A collector with a page at a Unix socket.
struct Site {
    environment: TestEnvironment,
    _directory: tempfile::TempDir,
    socket: PathBuf,
    collector: Collector,
}

impl Site {
    fn start() -> Self {
        let environment = TestEnvironment::new(Kind::Sqlite);
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let socket = directory.path().join("federate.sock");
        let federation = FederationConfig { listen: PageAddress::Unix(socket.clone()), token_file: None };
        let config = CollectorConfig { federation: Some(federation), ..environment.config() };
        let collector = Collector::start(&config, &environment.context).unwrap();
        Self { environment, _directory: directory, socket, collector }
    }

    /// Sends frames of a node, and of the job 42 on it.
    fn agent(&self, node: &str, session: u64) -> Agent {
        let mut agent = Agent::to(&self.environment.context, &self.collector, node, session);
        crate::sinks::send(&mut agent, now_us(), 5);
        agent
    }

    fn get(&self, target: &str) -> Response {
        Request { headers: OPEN_METRICS, ..Request::get(target) }.response(0, &self.socket)
    }

    fn page(&self, target: &str) -> BTreeMap<String, f64> {
        let response = self.get(target);
        assert_eq!(response.status, 200, "{response:?}");
        if response.text() == "# EOF\n" { BTreeMap::new() } else { Page::parse(response.text()).samples }
    }
}

/// Newest values in the store, as a page should have them.
fn newest(environment: &TestEnvironment, nodes: &[&str]) -> BTreeMap<String, f64> {
    let mut reader = environment.reader();
    let mut values = BTreeMap::new();
    let key = environment.jobs()[0].job_key;
    let of_nodes = nodes.iter().map(|node| (SeriesScope::Node(node), ""));
    for (scope, job) in of_nodes.chain([(SeriesScope::Job(key), "jobid=\"42\",")]) {
        for series in reader.series(scope).unwrap() {
            let (name, divisor, own) = match series.metric.as_str() {
                "cpu.usage" => ("polymeter_cpu_usage_seconds_total", 1e9, ["", ""]),
                "memory.margin" => ("polymeter_memory_margin_bytes", 1.0, ["", ""]),
                "node.load1" => ("polymeter_node_load1", 1.0, ["cpu=\"3\",", "exported_node=\"a=b\","]),
                other => panic!("{other}"),
            };
            let labels = format!("{}{}{job}node=\"{}\"", own[0], own[1], series.node);
            let points = reader.points(series.series_id, i64::MIN..i64::MAX).unwrap();
            values.insert(format!("{name}{{{labels}}}"), points.last().unwrap().1 / divisor);
        }
    }
    values
}

fn without_facts(mut samples: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    samples.retain(|name, _| !name.starts_with("polymeter_job_info{"));
    samples
}

fn the_page_has_the_newest_values_of_the_store_until_the_job_ends() {
    let site = Site::start();
    let mut first = site.agent("n1", 1);
    let _second = site.agent("n2", 2);
    let expected = newest(&site.environment, &["n1", "n2"]);
    assert_eq!(expected.len(), 12);
    wait_until("the page has the newest values", || without_facts(site.page(ALL)) == expected);
    let facts = site.page("/federate?match[]=polymeter_job_info");
    let of = |node| {
        format!(
            "polymeter_job_info{{cluster=\"lab\",jobid=\"42\",node=\"{node}\",uid=\"1000\",user=\"ada\"}}"
        )
    };
    assert_eq!(facts, BTreeMap::from([(of("n1"), 1.0), (of("n2"), 1.0)]));
    // polymeter_node_load1{node="n2",jobid=""} and polymeter_cpu_usage_seconds_total{node!="n2"}
    let selected = site.page(
        "/federate?match[]=polymeter_node_load1%7Bnode%3D%22n2%22,jobid%3D%22%22%7D\
         &match[]=polymeter_cpu_usage_seconds_total%7Bnode!%3D%22n2%22%7D",
    );
    let is_selected = |name: &&String| {
        let of_second = name.contains("node=\"n2\"") && !name.contains("jobid");
        (name.starts_with("polymeter_node_load1") && of_second)
            || (name.starts_with("polymeter_cpu_usage") && name.contains("node=\"n1\""))
    };
    assert_eq!(selected.keys().collect::<Vec<_>>(), expected.keys().filter(is_selected).collect::<Vec<_>>());
    assert_eq!(selected.len(), 3);
    let ended = Event::JobEnded { job: JobHandle(1), at_us: now_us() };
    let sequence = first.frame(&[], &[], &[ended]);
    first.send(sequence);
    first.wait_until_acknowledged();
    let is_left = |name: &&String| name.contains("node=\"n2\"") || !name.contains("jobid");
    let left: Vec<&String> = expected.keys().filter(is_left).collect();
    wait_until("the job vanishes from its first node", || {
        without_facts(site.page(ALL)).keys().collect::<Vec<_>>() == left
    });
    assert_eq!(site.page("/federate?match[]=polymeter_job_info").len(), 1);
    site.collector.stop().unwrap();
}

fn others_are_refused() {
    let site = Site::start();
    site.agent("n1", 1);
    for (target, status, part) in [
        ("/federate", 400, "a selector is missing"),
        ("/federate?match[]=%7B%7D", 400, "expected name{label="),
        ("/federate?match[]=%7Bnode%3D~%22(a|b)%22%7D", 400, "is not supported"),
        ("/metrics", 404, "the page is get /federate"),
    ] {
        let response = site.get(target);
        assert_eq!(response.status, status, "{response:?}");
        assert!(response.text().to_lowercase().contains(part), "{}", response.text());
    }
    let post = Request { method: "POST", ..Request::get(ALL) }.response(0, &site.socket);
    assert_eq!((post.status, post.head.contains("allow: get")), (405, true));
    if !rustix::process::geteuid().is_root() {
        skip("root", "the tests do not run as root");
    }
    let mut answer = Vec::new();
    let mut stream = connect_as(12_345, &site.socket);
    // The server closes the connection of another user, perhaps before the request is written.
    Request::get(ALL).send(&mut stream);
    assert!(std::io::Read::read_to_end(&mut stream, &mut answer).is_err() || answer.is_empty(), "{answer:?}");
    site.collector.stop().unwrap();
}

fn promtool_finds_no_fault() {
    let directory = std::env::var_os("POLYMETER_RECEIVERS").map(PathBuf::from).unwrap_or_default();
    let mut promtool = Command::new(directory.join("promtool"));
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = promtool.spawn() else {
        skip("receivers", "promtool is missing; `make test-remote-write` extracts it")
    };
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(token.path(), "an-example-of-a-token\n").unwrap();
    fs::set_permissions(token.path(), PermissionsExt::from_mode(0o600)).unwrap();
    let environment = TestEnvironment::new(Kind::Sqlite);
    let listen = PageAddress::Tcp("127.0.0.1:0".parse().unwrap());
    let federation = FederationConfig { listen, token_file: Some(token.path().to_owned()) };
    let config = CollectorConfig { federation: Some(federation), ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    crate::sinks::send(&mut agent, now_us(), 5);
    let Some(PageAddress::Tcp(address)) = collector.federation().cloned() else { panic!("no page") };
    let get = |headers: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        Request { headers, ..Request::get(ALL) }.send(&mut stream);
        receive(&mut stream)
    };
    for wrong in ["", "Authorization: Bearer an-example-of-another\r\n"] {
        let refused = get(wrong);
        assert_eq!((refused.status, refused.head.contains("www-authenticate: bearer")), (401, true));
    }
    let authorised = "Authorization: Bearer an-example-of-a-token\r\n";
    let mut page = get(authorised);
    wait_until("the page has the job", || {
        page = get(authorised);
        page.text().contains("polymeter_job_info{") && page.text().contains("polymeter_node_load1{")
    });
    assert!(page.head.contains("content-type: text/plain; version=0.0.4"), "{}", page.head);
    child.stdin.take().unwrap().write_all(&page.bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let found = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && found.is_empty(), "{found}");
    collector.stop().unwrap();
}
