//! Model of the CPU, as `/proc/cpuinfo` states it.

use std::fmt;
use std::path::Path;

use polymeter_proto::catalogue::derived::Machine;

use crate::sources::kernel_text;

/// Implementer and part of Arm's core Neoverse V2.
const ARM: u64 = 0x41;
const NEOVERSE_V2: u64 = 0xd4f;

pub(crate) fn machine(proc: &Path) -> Machine {
    CpuModel::read(proc).machine()
}

/// Numbers that identify a CPU; `None` where one is not stated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CpuModel {
    vendor: Option<String>,
    family: Option<u64>,
    model: Option<u64>,
    implementer: Option<u64>,
    part: Option<u64>,
}

impl CpuModel {
    pub(crate) fn read(proc: &Path) -> Self {
        Self::parse(&kernel_text::text(&proc.join("cpuinfo")).unwrap_or_default())
    }

    /// Parses the first CPU of `/proc/cpuinfo`.
    fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines().take_while(|line| !line.trim().is_empty()) {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match key.trim() {
                "vendor_id" => found.vendor = Some(value.chars().take(32).collect()),
                "cpu family" => found.family = value.parse().ok(),
                "model" => found.model = value.parse().ok(),
                "CPU implementer" => found.implementer = hexadecimal(value),
                "CPU part" => found.part = hexadecimal(value),
                _ => {}
            }
        }
        found
    }

    pub(crate) fn machine(&self) -> Machine {
        match (self.vendor.as_deref(), self.implementer, self.part) {
            (Some("GenuineIntel"), ..) => Machine::Intel,
            (Some("AuthenticAMD"), ..) => Machine::Amd,
            (_, Some(ARM), Some(NEOVERSE_V2)) => Machine::NeoverseV2,
            _ => Machine::Any,
        }
    }

    /// True for a family and one of its models; no models stand for all.
    pub(super) fn is_of(&self, family: u64, models: &[u64]) -> bool {
        let has_model = models.is_empty() || self.model.is_some_and(|model| models.contains(&model));
        self.family == Some(family) && has_model
    }
}

impl fmt::Display for CpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { vendor: Some(vendor), family: Some(family), model: Some(model), .. } => {
                write!(f, "{vendor} family {family} model {model}")
            }
            Self { implementer: Some(implementer), part: Some(part), .. } => {
                write!(f, "implementer {implementer:#x} part {part:#x}")
            }
            _ => f.write_str("this CPU, whose model is unknown"),
        }
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_those_of_the_first_cpu() {
        let intel = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon\n\n\
                     processor\t: 1\nmodel\t\t: 1\n";
        let cpu = CpuModel::parse(intel);
        assert_eq!(
            (cpu.machine(), cpu.to_string().as_str()),
            (Machine::Intel, "GenuineIntel family 6 model 143")
        );
        assert!(
            cpu.is_of(6, &[106, 143]) && cpu.is_of(6, &[]) && !cpu.is_of(6, &[106]) && !cpu.is_of(25, &[])
        );
        let grace = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n";
        assert_eq!(CpuModel::parse(grace).machine(), Machine::NeoverseV2);
        let other = CpuModel::parse("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n");
        assert_eq!(
            (other.machine(), other.to_string().as_str()),
            (Machine::Any, "implementer 0x41 part 0xd0c")
        );
        for nothing in ["", "\n", "vendor_id\n", "cpu family: x\nmodel: -1\nCPU part: 0xzz\n"] {
            assert_eq!(CpuModel::parse(nothing), CpuModel::default(), "{nothing:?}");
        }
    }
}
