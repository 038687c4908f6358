//! Lists of CPUs, as the kernel writes them.

/// Bound of CPU numbers: the kernel supports 8192.
const CPUS_MAX: usize = 65_536;

/// Parses a list of CPUs: `0-3,8`. A list of more CPUs than there can be is refused.
pub(super) fn parse(text: &str) -> Option<Vec<usize>> {
    let mut cpus: Vec<usize> = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first: usize = first.parse().ok()?;
        let last: usize = last.parse().ok().filter(|last| *last < CPUS_MAX)?;
        cpus.extend(first..=last);
        if cpus.len() > CPUS_MAX {
            return None;
        }
    }
    Some(cpus)
}

pub(super) fn check(data: &[u8]) {
    let Some(cpus) = parse(&String::from_utf8_lossy(data)) else { return };
    assert!(cpus.len() <= CPUS_MAX && cpus.iter().all(|cpu| *cpu < CPUS_MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_numbers_and_ranges() {
        assert_eq!(parse("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse("5"), Some(vec![5]));
        for wrong in ["", "a", "1-", "-1", "1,", "1 2", "0-18446744073709551615"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(parse("0-65535").map(|cpus| cpus.len()), Some(CPUS_MAX));
        assert_eq!(parse(&vec!["0-65535"; 2000].join(",")), None, "more than there can be");
    }
}
