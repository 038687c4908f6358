//! Measures an agent that polls devices outside the nodes.

mod arguments;
mod exporters;
pub(crate) mod stand_ins;

use std::error::Error;
use std::net::{Ipv4Addr, UdpSocket};

use polymeter_benches::agent::{Agent, Running};
use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until};
use polymeter_benches::process::{self, steal_s};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::ledger::Tally;
use polymeter_proto::period::Period;

pub(crate) use self::arguments::Arguments;
use self::stand_ins::{OBJECTS, StandIns, Stood, address};
use super::scale::part::Part;

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        (arguments.devices, arguments.dead, arguments.exporters) = (20, 2, 10);
        (arguments.seconds, arguments.warm_up) = (5, 5);
        arguments.exporter_period = Period::SECOND;
    }
    polymeter_agent::kernel::raise_descriptor_limit();
    table::machine();
    let mut rows = Vec::new();
    for dead in [0, arguments.dead] {
        rows.push(Polled::measure(&arguments, dead)?.row());
    }
    say(&format!("\nSNMP, {OBJECTS} values of each device every {}:\n", arguments.device_period));
    table::table(
        &[
            "devices",
            "of them dead",
            "deadlines kept",
            "late by a tenth",
            "agent CPU, % of a core",
            "µs of CPU for a poll",
            "polls per core and second",
            "memory",
            "stand-in: longest stretch",
            "timer late at most",
            "steal",
        ],
        &rows,
    );
    exporters::run(&arguments)
}

/// Polls of an agent with devices of SNMP.
#[derive(Debug)]
struct Polled {
    devices: u32,
    dead: u32,
    /// Counts of the living devices.
    tally: Tally,
    /// Requests that were answered.
    polls: u64,
    seconds: f64,
    cpu_s: f64,
    memory_kib: u64,
    stood: Stood,
    steal_s: f64,
}

impl Polled {
    fn measure(arguments: &Arguments, dead: u32) -> Result<Self, Box<dyn Error>> {
        let scratch = tempfile::tempdir()?;
        let mut stand_ins = Part::start("stand-ins", &StandIns { devices: arguments.devices, series: 0 })?;
        let port: u16 = stand_ins.line()?.parse()?;
        // It receives, and is never read.
        let silent = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let silent_port = silent.local_addr()?.port();
        let mut config = "node = \"devices1\"\njobs = []\n".to_owned();
        for number in 0..arguments.devices {
            let (kind, port) = if number < dead { ("dead", silent_port) } else { ("device", port) };
            config.push_str(&device(number, kind, port, arguments.device_period));
        }
        config.push_str("[baseline]\n\"agent.cpu.time\" = \"10s\"\n");
        let agent = Running::start(scratch.path(), &config)?;
        sleep_until(now_ns() + arguments.warm_up * SECOND_NS);
        agent.frames().for_each(drop);
        stand_ins.go()?;
        let stood_before: Stood = stand_ins.parsed_line()?;
        let (before, cpu_before, steal_before) = (living(&agent)?, process::usage(agent.pid())?, steal_s());
        let begin_ns = now_ns();
        let mut memory_kib = 0;
        for second in 1..=arguments.seconds {
            sleep_until(begin_ns + second * SECOND_NS);
            memory_kib = memory_kib.max(process::resident_kib(agent.pid())?);
            agent.frames().for_each(drop);
        }
        let (after, cpu_after) = (living(&agent)?, process::usage(agent.pid())?);
        let seconds = to_f64(now_ns() - begin_ns) / 1e9;
        stand_ins.go()?;
        let stood: Stood = stand_ins.parsed_line()?;
        if after.taken == before.taken {
            return Err(format!("no device was read: {after:?}").into());
        }
        Ok(Self {
            devices: arguments.devices,
            dead,
            tally: after.since(&before),
            polls: stood.answered - stood_before.answered,
            seconds,
            cpu_s: cpu_after.cpu_s - cpu_before.cpu_s,
            memory_kib,
            stood,
            steal_s: steal_s() - steal_before,
        })
    }

    fn row(&self) -> Vec<String> {
        let share = |part: u64| format!("{:.3} %", 100.0 * to_f64(part) / to_f64(self.tally.due.max(1)));
        let polls = to_f64(self.polls.max(1));
        vec![
            self.devices.to_string(),
            self.dead.to_string(),
            share(self.tally.taken),
            share(self.tally.late),
            format!("{:.2}", 100.0 * self.cpu_s / self.seconds),
            format!("{:.1}", 1e6 * self.cpu_s / polls),
            format!("{:.0}", polls / self.cpu_s.max(1e-9)),
            format!("{:.1} MiB", to_f64(self.memory_kib) / 1024.0),
            format!("{:.1} ms", to_f64(self.stood.longest_ns) / 1e6),
            format!("{:.1} ms", to_f64(self.stood.timer_ns) / 1e6),
            format!("{:.2} s", self.steal_s),
        ]
    }
}

/// Tables of a device with one metric for each object.
fn device(number: u32, kind: &str, port: u16, period: Period) -> String {
    let address = address(number);
    let mut text = format!("[[device]]\nname = \"{kind}{number}\"\nurl = \"snmp://{address}:{port}\"\n");
    for object in 0..OBJECTS {
        text.push_str(&format!(
            "[[device.metric]]\nname = \"power.of{object}\"\naddress = \"1.3.6.1.4.1.9.{object}.0\"\n\
             unit = \"watts\"\nperiod = \"{period}\"\n"
        ));
    }
    text
}

/// Sum over the sources of living devices.
fn living(agent: &Agent) -> Result<Tally, Box<dyn Error>> {
    let status = agent.connect()?.status()?;
    let mut sum = Tally::default();
    for source in status.subjects.iter().flat_map(|subject| &subject.sources) {
        if source.name.starts_with("device/device") {
            sum.add(&source.tally);
        }
    }
    Ok(sum)
}
