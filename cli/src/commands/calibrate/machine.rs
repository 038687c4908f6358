//! What the kernel says about caches, memory and load.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use polymeter_proto::units;
use polymeter_service::clock;

/// Assumed if the kernel does not say.
const UNKNOWN_CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// How much larger than the last-level caches an array is.
const CACHES: u64 = 4;

/// Divisor: the three arrays take at most half of the available memory.
const MEMORY_SHARE: u64 = 2;

const LOAD_TIME: Duration = Duration::from_millis(500);

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Such as `32768K`.
fn size_bytes(text: &str) -> Option<u64> {
    let (number, factor) = match text.strip_suffix('K') {
        Some(number) => (number, 1024),
        None => (text.strip_suffix('M')?, 1024 * 1024),
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// None if the kernel does not say.
pub(super) fn cache_bytes(root: &Path, cpus: &[usize]) -> Option<u64> {
    let mut caches: BTreeMap<(u32, String), u64> = BTreeMap::new();
    for cpu in cpus {
        let of_cpu = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cache"));
        for index in 0..8 {
            let file = |name: &str| text(&of_cpu.join(format!("index{index}/{name}")));
            let level = file("level").and_then(|level| level.parse().ok());
            let size = file("size").and_then(|size| size_bytes(&size));
            if let (Some(level), Some(size), Some(shared)) = (level, size, file("shared_cpu_list")) {
                caches.insert((level, shared), size);
            }
        }
    }
    let last = caches.keys().map(|(level, _)| *level).max()?;
    let of_last = caches.iter().filter(|((level, _), _)| *level == last);
    Some(of_last.map(|(_, size)| *size).fold(0, u64::saturating_add))
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Size of each array, on all CPUs together.
    pub(super) array_bytes: u64,
    /// Larger than the caches by the factor [`CACHES`].
    pub(super) is_enough: bool,
}

pub(super) fn sizes(cache_bytes: Option<u64>, available_bytes: Option<u64>) -> Sizes {
    let wanted = cache_bytes.unwrap_or(UNKNOWN_CACHE_BYTES).saturating_mul(CACHES);
    let room = available_bytes.map_or(u64::MAX, |available| available / MEMORY_SHARE / 3);
    Sizes { array_bytes: wanted.min(room), is_enough: wanted <= room }
}

pub(super) fn available_bytes(root: &Path) -> Option<u64> {
    let text = text(&root.join("proc/meminfo"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Time for which all CPUs were idle, and all of the time: the first line of `/proc/stat` (proc_stat(5)).
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let words = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    // Times of guests are contained in those of users.
    let ticks: Vec<u64> = words.take(8).map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [_, _, _, idle, waiting, ..] = ticks.as_slice() else { return None };
    Some((idle + waiting, ticks.iter().sum()))
}

pub(super) fn load_percent(root: &Path) -> Option<f64> {
    let now = || ticks(&fs::read_to_string(root.join("proc/stat")).ok()?);
    let (idle_before, all_before) = now()?;
    clock::sleep(LOAD_TIME);
    let (idle, all) = now()?;
    let (idle, all) = (idle.saturating_sub(idle_before), all.saturating_sub(all_before));
    (all > 0).then(|| 100.0 - 100.0 * units::to_f64(idle) / units::to_f64(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_caches_are_counted_once() {
        let root = tempfile::tempdir().unwrap();
        let cache = |cpu: usize, index: usize, level: &str, size: &str, shared: &str| {
            let directory = root.path().join(format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}"));
            fs::create_dir_all(&directory).unwrap();
            for (name, text) in [("level", level), ("size", size), ("shared_cpu_list", shared)] {
                fs::write(directory.join(name), format!("{text}\n")).unwrap();
            }
        };
        for cpu in 0..4 {
            cache(cpu, 0, "1", "32K", &cpu.to_string());
            cache(cpu, 3, "3", "16M", if cpu < 2 { "0-1" } else { "2-3" });
        }
        assert_eq!(cache_bytes(root.path(), &[0, 1, 2, 3]), Some(32 << 20));
        assert_eq!(cache_bytes(root.path(), &[0, 1]), Some(16 << 20));
        assert_eq!(cache_bytes(root.path(), &[7]), None);
        assert_eq!((size_bytes("4K"), size_bytes("4"), size_bytes("xK")), (Some(4096), None, None));
    }

    #[test]
    fn arrays_are_larger_than_the_caches_and_fit() {
        assert_eq!(sizes(Some(100), Some(1 << 30)), Sizes { array_bytes: 400, is_enough: true });
        assert_eq!(sizes(Some(100), Some(1200)), Sizes { array_bytes: 200, is_enough: false });
        assert_eq!(sizes(None, None), Sizes { array_bytes: 4 * UNKNOWN_CACHE_BYTES, is_enough: true });
    }

    #[test]
    fn kernel_texts_are_read() {
        assert_eq!(ticks("cpu  1 2 3 40 5 6 7 8 9 10\ncpu0 1\n"), Some((45, 72)));
        assert_eq!((ticks("cpu  1 2 3\n"), ticks("intr 1\n"), ticks("")), (None, None, None));
        let root = tempfile::tempdir().unwrap();
        assert_eq!((available_bytes(root.path()), load_percent(root.path())), (None, None));
        fs::create_dir(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/meminfo"), "MemTotal:  9 kB\nMemAvailable:  2 kB\n").unwrap();
        assert_eq!(available_bytes(root.path()), Some(2048));
    }
}
