//! Pages of metrics: those of an agent, and of exporters that the file of the experiment starts.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use polymeter_benches::agent::Running;
use polymeter_benches::clock::{SECOND_NS, now_ns, wait_for};
use polymeter_benches::histogram::Histogram;
use polymeter_benches::table::to_f64;
use polymeter_benches::tool::RunningTool;

use super::paper::{Cell, Paper};
use super::results::Values;

/// The page of an agent without a token has the node only.
const NODE: &str = "[baseline]\n\"node.*\" = \"1s\"\n";

const START_S: u64 = 30;

enum Server<'a> {
    Agent(Running),
    Exporter(RunningTool<'a>),
}

impl<'a> Server<'a> {
    /// Starts the tool of a cell, and waits until it serves pages. Exporters find the address in the
    /// environment variable LISTEN.
    fn start(paper: &'a Paper, cell: &Cell, scratch: &Path) -> Result<(Self, String), Box<dyn Error>> {
        // A free port, which nothing else takes within the moment until the server listens.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let server = match paper.tool(&cell.tool) {
            Some(tool) => Self::Exporter(tool.start(vec![("LISTEN", address.clone())])?),
            None => {
                let config = format!("{NODE}[openmetrics]\nlisten = \"{address}\"\n");
                Self::Agent(Running::start(scratch, &config)?)
            }
        };
        wait_for("a page with values is served", START_S, || {
            get(&address).ok().filter(|page| page.lines().any(|line| line.starts_with(char::is_alphabetic)))
        })?;
        Ok((server, address))
    }

    fn cpu_s(&self) -> Result<f64, Box<dyn Error>> {
        match self {
            Self::Agent(agent) => agent.cpu_s(),
            Self::Exporter(tool) => Ok(tool.cpu_s()?),
        }
    }
}

/// Reads a page over a connection of its own. Fails if the status is not 200.
fn get(address: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, page) = text.split_once("\r\n\r\n").ok_or("the answer has no end of its header")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status == "200" { Ok(page.to_owned()) } else { Err(format!("the status is {status}").into()) }
}

/// Reads pages one after the other.
pub(super) fn gather(paper: &Paper, cell: &Cell, scratch: &Path) -> Result<Values<'static>, Box<dyn Error>> {
    let (server, address) = Server::start(paper, cell, scratch)?;
    let (cpu_s, begin_ns) = (server.cpu_s()?, now_ns());
    let (mut latency_us, mut samples) = (Histogram::default(), 0);
    while now_ns() - begin_ns < paper.seconds * SECOND_NS {
        let sent_ns = now_ns();
        let page = get(&address)?;
        latency_us.record((now_ns() - sent_ns) / 1_000);
        samples = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    }
    let wall_s = to_f64(now_ns() - begin_ns) / 1e9;
    let (cpu_s, pages) = (server.cpu_s()? - cpu_s, to_f64(latency_us.total()));
    let quantile_ms = |part| to_f64(latency_us.quantile(part)) / 1e3;
    Ok(vec![
        ("mean_ms", wall_s * 1e3 / pages),
        ("p50_ms", quantile_ms(0.5)),
        ("p99_ms", quantile_ms(0.99)),
        ("most_ms", to_f64(latency_us.most()) / 1e3),
        ("cpu_us", cpu_s * 1e6 / pages),
        ("core_percent_at_10s", cpu_s * 10.0 / pages),
        ("samples", to_f64(samples as u64)),
    ])
}

/// Lets wrk read pages with so many threads and connections.
pub(super) fn wrk(
    paper: &Paper,
    cell: &Cell,
    load: (u32, u32),
    scratch: &Path,
) -> Result<Values<'static>, Box<dyn Error>> {
    let (server, address) = Server::start(paper, cell, scratch)?;
    run_wrk(paper.seconds, load, &[&format!("http://{address}/metrics")], || server.cpu_s())
}

/// Runs wrk with further arguments, and measures the CPU of the server.
pub(super) fn run_wrk(
    seconds: u64,
    (threads, connections): (u32, u32),
    arguments: &[&str],
    cpu_s: impl Fn() -> Result<f64, Box<dyn Error>>,
) -> Result<Values<'static>, Box<dyn Error>> {
    let (before_s, begin_ns) = (cpu_s()?, now_ns());
    let output = Command::new("wrk")
        .args([format!("-t{threads}"), format!("-c{connections}"), format!("-d{seconds}s")])
        .args(arguments)
        .output()?;
    let wall_s = to_f64(now_ns() - begin_ns) / 1e9;
    let cpu_percent = 100.0 * (cpu_s()? - before_s) / wall_s;
    let printed = String::from_utf8(output.stdout)?;
    if !output.status.success() {
        return Err(format!("wrk failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let mut values = of_wrk(&printed).ok_or_else(|| format!("wrk printed something else: {printed}"))?;
    values.push(("cpu_percent", cpu_percent));
    Ok(values)
}

/// Parses what wrk prints. `errors` are requests without a page: timeouts, failures of sockets, and other
/// answers than 200; `rate_per_s` has pages only.
fn of_wrk(printed: &str) -> Option<Values<'static>> {
    let line = |begin: &str| printed.lines().find_map(|line| line.trim_start().strip_prefix(begin));
    let number = |text: &str| text.trim().trim_end_matches(',').parse::<f64>().ok();
    let requests_per_s = number(line("Requests/sec:")?)?;
    let latency_ms = milliseconds(line("Latency")?.split_whitespace().next()?)?;
    let failures = line("Socket errors:").unwrap_or_default();
    let timeouts = failures.rsplit_once("timeout").map_or(Some(0.0), |(_, count)| number(count))?;
    let of_sockets: f64 = failures.split_whitespace().filter_map(number).sum();
    let refused = line("Non-2xx or 3xx responses:").map_or(Some(0.0), number)?;
    let answers = printed.lines().find_map(|line| number(line.split_once(" requests in ")?.0))?;
    let pages = if answers > 0.0 { 1.0 - refused / answers } else { 0.0 };
    Some(vec![
        ("rate_per_s", requests_per_s * pages),
        ("latency_ms", latency_ms),
        ("timeouts_percent", if answers > 0.0 { 100.0 * timeouts / answers } else { 100.0 }),
        ("errors", of_sockets + refused),
    ])
}

fn milliseconds(text: &str) -> Option<f64> {
    for (unit, ms) in [("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 6e4)] {
        if let Some(number) = text.strip_suffix(unit).and_then(|number| number.parse::<f64>().ok()) {
            return Some(number * ms);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by wrk 4.1.0.
    const PRINTED: &str = "Running 5s test @ http://127.0.0.1:9100/metrics
  1 threads and 200 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.19s   358.55ms   1.98s    75.51%
    Req/Sec    54.43     16.05   100.00     67.35%
  266 requests in 5.00s, 8.05MB read
  Socket errors: connect 0, read 3, write 0, timeout 21
  Non-2xx or 3xx responses: 133
Requests/sec:     53.16
Transfer/sec:      1.61MB
";

    #[test]
    fn the_text_of_wrk_is_understood() {
        let values = of_wrk(PRINTED).unwrap();
        let expected = [
            ("rate_per_s", 26.58),
            ("latency_ms", 1190.0),
            ("timeouts_percent", 2100.0 / 266.0),
            ("errors", 157.0),
        ];
        for ((name, value), (expected_name, expected)) in values.into_iter().zip(expected) {
            assert!(name == expected_name && (value - expected).abs() < 1e-6, "{name} {value}");
        }
        let quiet = PRINTED.lines().filter(|line| !line.contains("errors") && !line.contains("Non-2xx"));
        let values = of_wrk(&quiet.collect::<Vec<_>>().join("\n")).unwrap();
        assert!(values.contains(&("errors", 0.0)) && values.contains(&("rate_per_s", 53.16)));
        assert!(of_wrk("unable to connect").is_none());
        let times = ["871.52us", "1.50ms", "2.00s", "1.00m"].map(|text| milliseconds(text).unwrap());
        assert!(times.iter().zip([0.87152, 1.5, 2000.0, 60000.0]).all(|(a, b)| (a - b).abs() < 1e-9));
    }
}
