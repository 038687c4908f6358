//! Request of a script for Slurm, and the lines that change it. Pure.

use polymeter_analysis::model::Resource;
use polymeter_analysis::proposals::Request;
use polymeter_client::commands::{quantity, time_limit_s};
use polymeter_proto::units::to_f64;

use super::values::{Unread, memory_text, time_text};
use super::words::{Known, directives, options};

const KNOWN: &[Known] = &[
    ("account", Some('A')),
    ("cpus-per-task", Some('c')),
    ("exclusive", None),
    ("gpus", Some('G')),
    ("gpus-per-node", None),
    ("gpus-per-task", None),
    ("gres", None),
    ("job-name", Some('J')),
    ("mem", None),
    ("mem-per-cpu", None),
    ("mem-per-gpu", None),
    ("nodes", Some('N')),
    ("ntasks", Some('n')),
    ("ntasks-per-node", None),
    ("partition", Some('p')),
    ("time", Some('t')),
];

/// Options from which the request is computed.
#[derive(Debug, Default)]
pub(super) struct Slurm {
    pub(super) request: Request,
    tasks: f64,
    cpus_per_task: Option<f64>,
    nodes: f64,
    memory: Option<&'static str>,
    /// Option of the GPUs, and their type.
    gpus: Option<(&'static str, Option<String>)>,
}

impl Slurm {
    /// None without a line of Slurm.
    pub(super) fn of_script(script: &str, file_name: Option<&str>, unread: &mut Unread) -> Option<Self> {
        let lines = directives(script, "#SBATCH", true);
        if lines.is_empty() {
            return None;
        }
        let all: Vec<_> = lines.iter().flat_map(|words| options(words, KNOWN)).collect();
        // Of several, the last one counts.
        let text = |name: &str| all.iter().rev().find(|(of, _)| *of == name).map(|(_, value)| value.as_str());
        let mut number = |name: &str| text(name).and_then(|value| unread.number(name, value));
        let nodes = text("nodes").map(|value| value.split(['-', ',']).next().unwrap_or(value));
        let nodes = nodes.and_then(|text| text.parse::<u32>().ok()).filter(|nodes| *nodes > 0).map(f64::from);
        let per_node = number("ntasks-per-node");
        let cpus_per_task = number("cpus-per-task");
        let tasks = number("ntasks").or(per_node.map(|per_node| per_node * nodes.unwrap_or(1.0)));
        let tasks = tasks.or(nodes).unwrap_or(1.0);
        let is_exclusive = text("exclusive").is_some();
        let mut slurm = Self { tasks, cpus_per_task, nodes: nodes.unwrap_or(1.0), ..Self::default() };
        slurm.request = Request {
            name: text("job-name").or(file_name).map(str::to_owned),
            account: text("account").map(str::to_owned),
            queue: text("partition").map(str::to_owned),
            nodes,
            cores: (!is_exclusive).then(|| tasks * cpus_per_task.unwrap_or(1.0)),
            ..Request::default()
        };
        if let Some(value) = text("time") {
            slurm.request.time_limit_s = unread.read("time", value, || minutes(value)).flatten();
        }
        slurm.read_gpus(&text, unread);
        slurm.read_memory(&text, unread);
        Some(slurm)
    }

    pub(super) fn of_job(request: &Request) -> Self {
        let nodes = request.nodes.unwrap_or(1.0);
        let gpus = request.gpus.map(|_| ("gpus", None));
        let tasks = request.cores.unwrap_or(1.0);
        Self { request: request.clone(), tasks, nodes, gpus, ..Self::default() }
    }

    fn read_gpus<'a>(&mut self, text: &impl Fn(&str) -> Option<&'a str>, unread: &mut Unread) {
        let (nodes, tasks) = (self.nodes, self.tasks);
        for (name, factor) in
            [("gpus", 1.0), ("gpus-per-node", nodes), ("gpus-per-task", tasks), ("gres", nodes)]
        {
            let Some(value) = text(name) else { continue };
            let mut sum = None;
            for item in value.split(',') {
                // `gpu:a100:2(S:0-1)`
                let item = item.split('(').next().unwrap_or(item);
                let item = if name == "gres" {
                    match item.strip_prefix("gpu") {
                        Some("") => "1",
                        Some(rest) if rest.starts_with(':') => rest.trim_start_matches(':'),
                        Some(_) | None => continue,
                    }
                } else {
                    item
                };
                let (kind, count) = match item.rsplit_once(':') {
                    Some((kind, count)) => (Some(kind), count),
                    None if item.bytes().all(|byte| byte.is_ascii_digit()) => (None, item),
                    None => (Some(item), "1"),
                };
                let Some(count) = unread.number(name, count) else { continue };
                sum = Some(sum.unwrap_or(0.0) + count * factor);
                self.gpus = Some((name, kind.map(str::to_owned)));
            }
            if sum.is_some() {
                self.request.gpus = sum;
                return;
            }
        }
    }

    fn read_memory<'a>(&mut self, text: &impl Fn(&str) -> Option<&'a str>, unread: &mut Unread) {
        for name in ["mem", "mem-per-cpu", "mem-per-gpu"] {
            let Some(value) = text(name) else { continue };
            let bytes = unread.read(name, value, || megabytes(value)).filter(|bytes| *bytes > 0.0);
            self.memory = Some(name);
            self.request.memory_bytes = bytes.and_then(|bytes| Some(bytes * self.parts(name)?));
        }
    }

    /// Number of parts of a node to each of which the memory option `name` applies.
    fn parts(&self, name: &str) -> Option<f64> {
        match name {
            "mem-per-cpu" => self.request.cores.map(|cores| cores / self.nodes),
            "mem-per-gpu" => self.request.gpus.map(|gpus| gpus / self.nodes),
            _ => Some(1.0),
        }
    }

    /// None if the line would not change.
    pub(super) fn line(&self, resource: Resource, proposed: f64) -> Option<String> {
        let option = match resource {
            Resource::Time => format!("time={}", time_text(proposed)),
            Resource::Memory => {
                let name = self.memory.unwrap_or("mem");
                format!("{name}={}", memory_text(proposed / self.parts(name).unwrap_or(1.0)))
            }
            Resource::Cpu => match self.cpus_per_task {
                Some(cpus) if cpus > 1.0 => {
                    let wanted = (proposed / self.tasks).ceil();
                    if wanted >= cpus {
                        return None;
                    }
                    format!("cpus-per-task={wanted:.0}")
                }
                _ => format!("ntasks={proposed:.0}"),
            },
            Resource::Gpu => {
                let (name, kind) = self.gpus.as_ref()?;
                let parts = match *name {
                    "gpus" => 1.0,
                    "gpus-per-task" => self.tasks,
                    _ => self.nodes,
                };
                let count = (proposed / parts).ceil();
                let kind = kind.as_ref().map_or_else(String::new, |kind| format!("{kind}:"));
                format!("{name}={}{kind}{count:.0}", if *name == "gres" { "gpu:" } else { "" })
            }
        };
        Some(format!("#SBATCH --{option}"))
    }
}

/// Parses a time limit, in seconds: a number alone is minutes; none if there is no limit.
fn minutes(text: &str) -> Result<Option<f64>, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = if is_number { format!("{text}:00") } else { text.to_owned() };
    time_limit_s(&text).map(|limit| limit.map(to_f64)).map_err(|error| error.to_string())
}

/// Parses an amount of memory, in bytes: a number alone is megabytes.
fn megabytes(text: &str) -> Result<f64, String> {
    let text = if text.ends_with(|letter: char| letter.is_ascii_digit()) {
        format!("{text}M")
    } else {
        text.to_owned()
    };
    quantity(&text).map(to_f64).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: f64 = 1_073_741_824.0;

    fn read(lines: &[&str]) -> (Slurm, Unread) {
        let script: String = lines.iter().map(|line| format!("#SBATCH {line}\n")).collect();
        let mut unread = Unread::default();
        (Slurm::of_script(&script, Some("job.sh"), &mut unread).unwrap(), unread)
    }

    fn request(lines: &[&str]) -> Request {
        let (slurm, unread) = read(lines);
        assert_eq!(unread.0, Vec::<String>::new(), "{lines:?}");
        slurm.request
    }

    #[test]
    fn cores_nodes_and_names_are_read() {
        for (lines, cores, nodes) in [
            (&["-n 4"][..], Some(4.0), None),
            (&["-n4", "-c 2"], Some(8.0), None),
            (&["--ntasks=4", "--cpus-per-task 3", "-N2"], Some(12.0), Some(2.0)),
            (&["--nodes=2-4 --ntasks-per-node=16"], Some(32.0), Some(2.0)),
            (&["-N 3"], Some(3.0), Some(3.0)),
            (&["--exclusive", "-N 3"], None, Some(3.0)),
            (&["-n 2", "-n 5"], Some(5.0), None),
            (&["--qos=x"], Some(1.0), None),
        ] {
            let request = request(lines);
            assert_eq!((request.cores, request.nodes), (cores, nodes), "{lines:?}");
            assert_eq!(request.name.as_deref(), Some("job.sh"));
        }
        let named = request(&["-J train -A physics", "--partition=long"]);
        assert_eq!(
            [named.name, named.account, named.queue].map(Option::unwrap),
            ["train", "physics", "long"]
        );
    }

    #[test]
    fn times_and_memory_have_all_forms() {
        for (text, seconds) in [
            ("-t 90", Some(5400.0)),
            ("-t 1:30", Some(90.0)),
            ("--time=1-02:00:00", Some(93_600.0)),
            ("-t1-12", Some(129_600.0)),
            ("--time 2:00:00", Some(7200.0)),
            ("--time=UNLIMITED", None),
        ] {
            assert_eq!(request(&[text]).time_limit_s, seconds, "{text}");
        }
        for (lines, gib) in [
            (&["--mem=4G"][..], Some(4.0)),
            (&["--mem 2048"], Some(2.0)),
            (&["--mem=0"], None),
            (&["-n 8 -N 2", "--mem-per-cpu=1G"], Some(4.0)),
            (&["-N 2 --gres=gpu:4", "--mem-per-gpu=512M"], Some(2.0)),
        ] {
            assert_eq!(request(lines).memory_bytes, gib.map(|gib| gib * GIB), "{lines:?}");
        }
        let (_, unread) = read(&["--mem=much", "-t soon", "-n x"]);
        assert_eq!(unread.0.len(), 3, "{unread:?}");
    }

    #[test]
    fn gpus_are_counted_on_all_nodes() {
        for (lines, gpus) in [
            (&["--gpus=4"][..], Some(4.0)),
            (&["-G a100:2,v100:1"], Some(3.0)),
            (&["-N 2", "--gpus-per-node=a100:4"], Some(8.0)),
            (&["-n 3", "--gpus-per-task=1"], Some(3.0)),
            (&["--gres=gpu"], Some(1.0)),
            (&["--gres=gpu:a100"], Some(1.0)),
            (&["-N2 --gres=shard:1,gpu:a100:2(S:0-1)"], Some(4.0)),
            (&["--gres=tmpfs:10G"], None),
        ] {
            assert_eq!(request(lines).gpus, gpus, "{lines:?}");
        }
    }

    #[test]
    fn lines_have_the_options_of_the_script() {
        let line = |lines: &[&str], resource, proposed| read(lines).0.line(resource, proposed);
        for (lines, resource, proposed, expected) in [
            (&["-n 1"][..], Resource::Time, 93_600.0, Some("--time=26:00:00")),
            (&["-n 1"], Resource::Memory, 6.0 * GIB, Some("--mem=6G")),
            (&["-n 4", "--mem-per-cpu=8G"], Resource::Memory, 6.0 * GIB, Some("--mem-per-cpu=1536M")),
            (&["-n 2 -c 8"], Resource::Cpu, 7.0, Some("--cpus-per-task=4")),
            (&["-n 2 -c 8"], Resource::Cpu, 15.0, None),
            (&["-n 16"], Resource::Cpu, 7.0, Some("--ntasks=7")),
            (&["-N 2 --gres=gpu:a100:4"], Resource::Gpu, 3.0, Some("--gres=gpu:a100:2")),
            (&["--gpus=4"], Resource::Gpu, 1.0, Some("--gpus=1")),
        ] {
            let expected = expected.map(|option| format!("#SBATCH {option}"));
            assert_eq!(line(lines, resource, proposed), expected, "{lines:?}");
        }
    }
}
