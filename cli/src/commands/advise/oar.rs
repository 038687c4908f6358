//! Request of a script for OAR, and the line that changes it. Pure.

use polymeter_analysis::model::Resource;
use polymeter_analysis::proposals::Request;
use polymeter_client::commands::time_limit_s;
use polymeter_proto::units::to_f64;

use super::values::{Unread, time_text};
use super::words::{Known, directives, options};

const KNOWN: &[Known] =
    &[("name", Some('n')), ("project", None), ("queue", Some('q')), ("resource", Some('l'))];

const NODES: [&str; 4] = ["nodes", "host", "network_address", "node"];

#[derive(Debug, Default)]
pub(super) struct Oar {
    pub(super) request: Request,
    /// Value of `-l`.
    resource: String,
}

impl Oar {
    /// None without a line of OAR.
    pub(super) fn of_script(script: &str, unread: &mut Unread) -> Option<Self> {
        let lines = directives(script, "#OAR", false);
        if lines.is_empty() {
            return None;
        }
        let all: Vec<_> = lines.iter().flat_map(|words| options(words, KNOWN)).collect();
        let text = |name: &str| all.iter().find(|(of, _)| *of == name).map(|(_, value)| value.clone());
        // Further ones are alternatives.
        let resource = text("resource").unwrap_or_default();
        let mut request = Request {
            name: text("name"),
            account: text("project"),
            queue: text("queue"),
            ..Request::default()
        };
        read_resource(&resource, &mut request, unread);
        Some(Self { request, resource })
    }

    pub(super) fn of_job(request: &Request) -> Self {
        let nodes = request.nodes.unwrap_or(1.0);
        let cores =
            request.cores.map_or_else(String::new, |cores| format!("/core={:.0}", (cores / nodes).ceil()));
        Self { request: request.clone(), resource: format!("/nodes={nodes:.0}{cores}") }
    }

    pub(super) fn line(&self, proposals: &[(Resource, f64)]) -> Option<String> {
        let mut resource = self.resource.clone();
        let mut is_changed = false;
        for (of, proposed) in proposals {
            let changed = match of {
                Resource::Time => Some(with_walltime(&resource, &time_text(*proposed))),
                Resource::Cpu => {
                    self.request.cores.and_then(|all| scaled(&resource, "core=", all, *proposed))
                }
                Resource::Gpu => self.request.gpus.and_then(|all| scaled(&resource, "gpu=", all, *proposed)),
                // OAR gives a share of the node's memory with the cores.
                Resource::Memory => None,
            };
            if let Some(changed) = changed {
                (resource, is_changed) = (changed, true);
            }
        }
        is_changed.then(|| format!("#OAR -l {}", quoted(&resource)))
    }
}

fn quoted(resource: &str) -> String {
    if resource.contains([' ', '{', '\'', '"']) {
        format!("\"{}\"", resource.replace('"', "'"))
    } else {
        resource.to_owned()
    }
}

fn with_walltime(resource: &str, time: &str) -> String {
    match resource.split_once("walltime=") {
        Some((before, after)) => {
            let rest = after.find([',', ' ']).and_then(|end| after.get(end..)).unwrap_or_default();
            format!("{before}walltime={time}{rest}")
        }
        None if resource.is_empty() => format!("walltime={time}"),
        None => format!("{resource},walltime={time}"),
    }
}

/// Changes the number at a level, of which it has `all` in total; none if it would not be less.
fn scaled(resource: &str, level: &str, all: f64, proposed: f64) -> Option<String> {
    let (before, after) = resource.split_once(level)?;
    let end = after.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(after.len());
    let (number, rest) = after.split_at_checked(end)?;
    let number = f64::from(number.parse::<u32>().ok()?);
    let wanted = (proposed / (all / number)).ceil();
    // A second group has numbers of its own.
    (wanted < number && !rest.contains(level)).then(|| format!("{before}{level}{wanted:.0}{rest}"))
}

/// Reads `{property}/nodes=2/core=4+/nodes=1,walltime=1:0:0`.
fn read_resource(resource: &str, request: &mut Request, unread: &mut Unread) {
    let mut plain = String::new();
    let mut depth = 0_u32;
    for letter in resource.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    for part in plain.split(',').map(str::trim) {
        if let Some(time) = part.strip_prefix("walltime=") {
            request.time_limit_s = unread.read("walltime", time, || walltime(time));
            continue;
        }
        for group in part.split('+') {
            add_group(group, request, unread);
        }
    }
}

/// Adds `/nodes=2/core=4`, whose numbers multiply.
fn add_group(group: &str, request: &mut Request, unread: &mut Unread) {
    let mut product = Some(1.0);
    for level in group.split('/').map(str::trim).filter(|level| !level.is_empty()) {
        let Some((name, count)) = level.split_once('=') else { continue };
        let is_open = ["ALL", "BEST", "BESTHALF"].contains(&count);
        let number = if is_open { None } else { unread.number(name, count) };
        product = product.zip(number).map(|(product, number)| product * number);
        let slot = match name {
            _ if NODES.contains(&name) => &mut request.nodes,
            "core" => &mut request.cores,
            "gpu" => &mut request.gpus,
            _ => continue,
        };
        *slot = product.map(|product| product + slot.unwrap_or(0.0));
    }
}

/// Parses hours, `HOURS:MINUTES` or `HOURS:MINUTES:SECONDS`, in seconds.
fn walltime(text: &str) -> Result<f64, String> {
    let missing = 2_usize.saturating_sub(text.matches(':').count());
    let limit =
        time_limit_s(&format!("{text}{}", ":00".repeat(missing))).map_err(|error| error.to_string())?;
    limit.map(to_f64).ok_or_else(|| "not a time".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> (Oar, Unread) {
        let mut unread = Unread::default();
        (Oar::of_script(&format!("#!/bin/sh\ntrue\n#OAR {line}\n"), &mut unread).unwrap(), unread)
    }

    #[test]
    fn resources_are_products_of_their_levels() {
        for (line, [nodes, cores, gpus, seconds]) in [
            ("-l /nodes=2/core=4,walltime=1:0:0", [2.0, 8.0, 0.0, 3600.0]),
            ("-l nodes=3,walltime=2", [3.0, 0.0, 0.0, 7200.0]),
            ("-l core=6,walltime=0:30", [0.0, 6.0, 0.0, 1800.0]),
            ("-l /host=2/gpu=2/core=3", [2.0, 12.0, 4.0, 0.0]),
            ("-l \"{gpu_model='A100', mem > 4}/host=1/gpu=2,walltime=10:00:00\"", [1.0, 0.0, 2.0, 36_000.0]),
            ("--resource=/nodes=1/core=2+/nodes=2/core=1,walltime=1", [3.0, 4.0, 0.0, 3600.0]),
            ("-l /nodes=2/cpu=2/core=4", [2.0, 16.0, 0.0, 0.0]),
            ("-l /cluster=1/nodes=ALL/core=2", [0.0, 0.0, 0.0, 0.0]),
            ("-n solve -q besteffort", [0.0; 4]),
        ] {
            let (Oar { request, .. }, unread) = read(line);
            let found = [request.nodes, request.cores, request.gpus, request.time_limit_s];
            assert_eq!(found.map(Option::unwrap_or_default), [nodes, cores, gpus, seconds], "{line}");
            assert!(unread.0.is_empty(), "{line}: {unread:?}");
        }
        let (Oar { request, .. }, _) = read("-n solve --project=physics -q long");
        let texts = [request.name, request.account, request.queue].map(Option::unwrap);
        assert_eq!(texts, ["solve", "physics", "long"]);
        assert_eq!(read("-l /nodes=x,walltime=y").1.0.len(), 2);
    }

    #[test]
    fn the_line_changes_what_is_proposed() {
        let all = [(Resource::Time, 5400.0), (Resource::Cpu, 3.0), (Resource::Gpu, 1.0)];
        for (line, expected) in [
            ("-l /nodes=2/core=4,walltime=10:0:0", "/nodes=2/core=2,walltime=01:30:00"),
            ("-l nodes=3", "nodes=3,walltime=01:30:00"),
            ("-l \"{a='x'}/host=1/gpu=2,walltime=9\"", "\"{a='x'}/host=1/gpu=1,walltime=01:30:00\""),
        ] {
            assert_eq!(read(line).0.line(&all), Some(format!("#OAR -l {expected}")), "{line}");
        }
        assert_eq!(read("-l nodes=3").0.line(&[]), None);
    }
}
