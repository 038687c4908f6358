//! The management controller of OpenIPMI (`ipmi_sim`), and FreeIPMI, which reads controllers.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::bmc::BmcSensor;
use crate::daemons::Daemon;
use crate::snmpd::free_address;
use crate::{TestEnvironment, wait_until};

const PROGRAM: &str = "/usr/bin/ipmi_sim";
const READER: &str = "/usr/sbin/ipmi-sensors";

pub(crate) fn missing() -> Option<String> {
    let is_there = [PROGRAM, READER].iter().all(|program| Path::new(program).exists());
    (!is_there).then(|| "ipmi_sim or FreeIPMI is missing; `make test-deps` installs them".to_owned())
}

pub struct IpmiSim {
    _daemon: Daemon,
    /// `127.0.0.1:PORT`.
    pub address: String,
}

impl IpmiSim {
    /// Starts it with these sensors, and the user `monitor`.
    pub fn start(env: &TestEnvironment, password: &str, sensors: &[BmcSensor]) -> Self {
        let address = free_address();
        let (lan, commands, state) = (env.path("lan.conf"), env.path("sim.emu"), env.path("ipmi_sim"));
        fs::create_dir(&state).unwrap();
        let configuration = format!(
            "name \"sim\"\nset_working_mc 0x20\nstartlan 1\naddr {}\npriv_limit admin\n\
             allowed_auths_user md5\nguid a123456789abcdefa123456789abcdef\nendlan\n\
             user 2 true \"monitor\" \"{password}\" user 10 md5\n",
            address.replace(':', " ")
        );
        fs::write(&lan, configuration).unwrap();
        fs::write(&commands, emulation(sensors)).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("-n").arg("-c").arg(&lan).arg("-f").arg(&commands).arg("-s").arg(&state);
        Self { _daemon: Daemon::of(env, command), address }
    }
}

fn emulation(sensors: &[BmcSensor]) -> String {
    let mut text = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\n".to_owned();
    for sensor in sensors {
        let (number, reading) = (sensor.number, sensor.reading.unwrap_or(0));
        let record: Vec<String> = sensor.record().iter().map(|byte| format!("{byte:#x}")).collect();
        let none = "000000000000000";
        let scanning = if sensor.reading.is_some() { "scanning" } else { "no-scanning" };
        write!(
            text,
            "sensor_add 0x20 0 {number} 1 1\nsensor_set_value 0x20 0 {number} {reading} 0\n\
             sensor_set_event_support 0x20 0 {number} enable {scanning} per-state {none} {none} {none} {none}\n\
             main_sdr_add 0x20 {}\n",
            record.join(" ")
        )
        .unwrap();
    }
    text + "mc_enable 0x20\n"
}

/// Values by the names of sensors, as FreeIPMI reads them.
pub fn read_by_freeipmi(
    env: &TestEnvironment,
    address: &str,
    password: &str,
    suite: &str,
) -> Vec<(String, f64)> {
    let mut values = Vec::new();
    wait_until("FreeIPMI has read the sensors", || {
        let cache = env.path("freeipmi");
        fs::create_dir_all(&cache).unwrap();
        let mut command = Command::new(READER);
        command.args(["-D", "LAN_2_0", "-h", address, "-u", "monitor", "-p", password, "-l", "USER", "-I"]);
        command.args([suite, "-W", "opensesspriv", "--quiet-cache", "--comma-separated-output"]);
        command.args(["--no-header-output", "--flush-cache"]);
        command.arg(format!("--sdr-cache-directory={}", cache.display()));
        command.output().unwrap();
        let arguments: Vec<_> = command.get_args().filter(|argument| *argument != "--flush-cache").collect();
        let output = Command::new(READER).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        values = text
            .lines()
            .filter_map(|line| {
                let [_, name, _, reading, ..] = line.split(',').collect::<Vec<_>>()[..] else { return None };
                Some((name.to_owned(), reading.parse().ok()?))
            })
            .collect();
        !values.is_empty()
    });
    values
}

/// Power of the machine in watts, as FreeIPMI reads it.
pub fn power_by_freeipmi(address: &str, password: &str, suite: &str) -> String {
    let mut command = Command::new("/usr/sbin/ipmi-dcmi");
    command.args(["-D", "LAN_2_0", "-h", address, "-u", "monitor", "-p", password, "-l", "USER", "-I"]);
    command.args([suite, "-W", "opensesspriv", "--get-system-power-statistics"]);
    let output = command.output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}
