//! Lists of CPUs, as the kernel writes them.

/// A bound of the numbers of CPUs: the kernel supports 8192.
const CPUS_MAX: usize = 65_536;

/// Parses a list of CPUs: `0-3,8`.
pub(super) fn parse(text: &str) -> Option<Vec<usize>> {
    let range = |range: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let last = last.parse().ok().filter(|last| *last < CPUS_MAX)?;
        Some(first.parse().ok()?..=last)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    Some(ranges?.into_iter().flatten().collect())
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
    }
}
