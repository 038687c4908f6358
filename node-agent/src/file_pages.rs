//! Pages of the program and of its libraries. Most of them are used only at the start and when sources
//! are opened; the kernel keeps them mapped, so that they count as resident. Unmapped they stay in the page
//! cache, from which a later use maps them again without I/O.

use std::fs;
use std::ops::Range;
use std::sync::OnceLock;

use crate::kernel;

/// Mappings that can be released; empty until [`note_mappings`] is called.
static MAPPINGS: OnceLock<Vec<Range<usize>>> = OnceLock::new();

/// Notes the mappings of the program and of the libraries that were loaded with it. To be called before other
/// threads exist: a library that is loaded meanwhile would be mapped and then written to.
pub fn note_mappings() {
    // Without the file, nothing is released.
    let text = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    MAPPINGS.get_or_init(|| unwritten(&text));
}

/// Unmaps the pages of the noted mappings. Threads that use them wait for some microseconds.
pub(crate) fn release() {
    for mapping in MAPPINGS.get().into_iter().flatten() {
        kernel::release_file_pages(mapping);
    }
}

/// Parses the text of smaps, proc_pid_smaps(5), for mappings whose pages are those of a file: private, not
/// writable, and never written to, as those with relocated addresses were.
fn unwritten(smaps: &str) -> Vec<Range<usize>> {
    let mut mappings = Vec::new();
    let mut candidate = None;
    for line in smaps.lines() {
        if let Some(rest) = line.strip_prefix("Anonymous:") {
            let is_unwritten = rest.split_ascii_whitespace().next() == Some("0");
            mappings.extend(candidate.take().filter(|_| is_unwritten));
        } else if let Some(mapping) = mapping(line) {
            candidate = mapping;
        }
    }
    mappings
}

/// Parses a head line, `55d0c0000000-55d0c0100000 r-xp 00000000 fe:00 42 /usr/bin/polymeter-agent`.
/// `Some(None)` if the mapping is writable, shared or of no file; `None` for other lines.
fn mapping(line: &str) -> Option<Option<Range<usize>>> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let range = usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(to, 16).ok()?;
    let permissions = words.next()?.as_bytes();
    let is_fixed = permissions.get(1) == Some(&b'-') && permissions.get(3) == Some(&b'p');
    let is_of_file = words.nth(3).is_some_and(|path| path.starts_with('/'));
    Some((is_fixed && is_of_file).then_some(range))
}

/// Calls without a change after which pages are released: soon after sources were opened, and once more after
/// the first calibration and connection.
const RELEASES: [u32; 2] = [1, 9];

/// Decides when to release pages: once the number of open sources has changed, and stays the same for a
/// while.
#[derive(Debug, Default)]
pub(crate) struct Release {
    sources: Option<u64>,
    unchanged: u32,
}

impl Release {
    /// True if pages should be released now, with `sources` open. To be called every few seconds.
    pub(crate) fn is_due(&mut self, sources: u64) -> bool {
        let is_same = self.sources.replace(sources) == Some(sources);
        self.unchanged = if is_same { self.unchanged.saturating_add(1) } else { 0 };
        RELEASES.contains(&self.unchanged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55d0c0000000-55d0c00c0000 r--p 00000000 fe:00 42                         /usr/bin/polymeter-agent
Size:                768 kB
Rss:                 756 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
55d0c00c0000-55d0c0400000 r-xp 000c0000 fe:00 42                         /usr/bin/polymeter-agent
Rss:                3512 kB
Anonymous:             0 kB
55d0c0400000-55d0c0440000 r--p 00400000 fe:00 42                         /usr/bin/polymeter-agent
Rss:                 244 kB
Anonymous:           244 kB
55d0c0440000-55d0c0442000 rw-p 00440000 fe:00 42                         /usr/bin/polymeter-agent
Anonymous:             0 kB
55d0c1000000-55d0c1100000 rw-p 00000000 00:00 0                          [heap]
Anonymous:          1024 kB
7f0000000000-7f0000001000 r--s 00000000 fe:00 43                         /usr/lib/locale/C.utf8
Anonymous:             0 kB
7f0000002000-7f0000003000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
7f0000004000-7f0000005000 r--p 00000000 00:00 0
Anonymous:             0 kB
";

    #[test]
    fn only_pages_that_equal_those_of_a_file_are_released() {
        assert_eq!(
            unwritten(SMAPS),
            [0x55d0_c000_0000..0x55d0_c00c_0000, 0x55d0_c00c_0000..0x55d0_c040_0000]
        );
        assert_eq!(unwritten("garbage\nAnonymous:\n-\n"), []);
    }

    #[test]
    fn pages_are_released_twice_after_sources_were_opened() {
        let mut release = Release::default();
        let due = [3, 3, 3, 5, 7, 7, 7, 3, 3].map(|sources| release.is_due(sources));
        assert_eq!(due, [false, true, false, false, false, true, false, false, true]);
        assert_eq!((0..100).filter(|_| release.is_due(3)).count(), 1);
    }

    fn smaps() -> String {
        fs::read_to_string("/proc/self/smaps").unwrap()
    }

    fn resident_kib() -> u64 {
        let text = smaps();
        let of_program = text.split_once(" r-xp ").unwrap().1;
        let rss = of_program.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        rss.split_ascii_whitespace().next().unwrap().parse().unwrap()
    }

    #[test]
    fn released_pages_can_be_used_again() {
        // Those of the program come first; the others are of libraries, which other tests load meanwhile.
        let mappings = unwritten(&smaps());
        // Other threads use pages meanwhile, which maps them again.
        assert!((0..1_000).any(|_| {
            let before_kib = resident_kib();
            mappings.iter().take(2).for_each(kernel::release_file_pages);
            resident_kib() < before_kib
        }));
    }
}
