//! Output of `beegfs-ctl --clientstats --allstats --rwunit=B --interval=0`. Source: `ModeClientStats.cpp` and
//! `OpCounter.h` of BeeGFS 7: a line for each client, by its address, of pairs of a number and a name in
//! brackets: `10.1.2.3 61957 [sum] 0 [ack] 22385 [ops-rd] 3.28771e+08 [B-rd] 21504 [ops-wr] 8.80804e+07
//! [B-wr]`.
//!
//! BeeGFS 7 prints bytes with six digits, versions before it with all. A first line may have the sum over all
//! clients.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::UnknownLines;

/// Largest double taken for a count: above it the conversion would saturate.
const COUNT_MAX: f64 = 9e18;

/// Sums each counter over the lines of a client's addresses; `None` without such a line.
pub(super) fn sums<'a>(text: &'a str, addresses: &BTreeSet<String>) -> Option<BTreeMap<&'a str, u64>> {
    let mut sums: Option<BTreeMap<&str, u64>> = None;
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let mut words = line.split_ascii_whitespace();
        if !words.next().is_some_and(|id| addresses.contains(id)) {
            continue;
        }
        let sums = sums.get_or_insert_default();
        while let (Some(number), Some(name)) = (words.next(), words.next()) {
            let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            // What follows a malformed pair is not understood either.
            let (Some(name), Some(count)) = (name, count(number)) else { break };
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    sums
}

pub(super) fn unknown(text: &str) -> UnknownLines {
    let mut unknown = UnknownLines::default();
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_title = words.first().is_none_or(|first| first.starts_with("==="));
        let (pairs, rest) = words.get(1..).unwrap_or_default().as_chunks::<2>();
        if !is_title && (pairs.is_empty() || !rest.is_empty() || !pairs.iter().all(is_pair)) {
            unknown.add(line.as_bytes());
        }
    }
    unknown
}

fn is_pair([number, name]: &[&str; 2]) -> bool {
    count(number).is_some() && name.starts_with('[') && name.ends_with(']')
}

/// Parses a count, which may be written with an exponent.
fn count(word: &str) -> Option<u64> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        return word.parse().ok();
    }
    let is_decimal = word.bytes().all(|byte| byte.is_ascii_digit() || b".e+".contains(&byte));
    let value: f64 = is_decimal.then(|| word.parse().ok())??;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range")]
    (0.0..COUNT_MAX).contains(&value).then_some(value as u64)
}

/// Addresses of a client, from the file `client_info` of its directory in `/proc/fs/beegfs`: `+ ib0[ip addr:
/// 10.1.2.3; type: RDMA]`.
pub(super) fn addresses(client_info: &str) -> impl Iterator<Item = String> {
    client_info.split_inclusive('\n').filter_map(|line| {
        let (_, rest) = line.split_once("[ip addr: ")?;
        let (address, _) = rest.split_once([';', ']'])?;
        (!address.is_empty()).then(|| address.to_owned())
    })
}

/// In any text, a line that is cut off changes nothing, and no other client counts.
pub(in crate::sources) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let own: BTreeSet<String> = ["10.1.2.3".to_owned()].into();
    let end = text.rfind('\n').map_or(0, |last| last + 1);
    let whole = text.get(..end).unwrap_or_default();
    assert_eq!(sums(&text, &own), sums(whole, &own));
    assert!(sums(&text, &own).is_none() || text.contains("10.1.2.3"));
    assert_eq!(sums(&text, &BTreeSet::new()), None);
    assert!(addresses(&text).all(|address| text.contains(&address)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::beegfs::tests::{CLIENT_INFO, STORAGE};

    fn of<'a>(text: &'a str, own: &[&str]) -> Option<BTreeMap<&'a str, u64>> {
        sums(text, &own.iter().map(|address| (*address).to_owned()).collect())
    }

    #[test]
    fn a_client_has_its_own_counts_only() {
        let counts = of(STORAGE, &["10.1.2.3"]).unwrap();
        assert_eq!((counts["sum"], counts["ops-rd"], counts["fsync"]), (61_957, 22_385, 0));
        assert_eq!((counts["B-rd"], counts["B-wr"]), (328_771_000, 88_080_400), "six digits");
        assert_eq!(of(STORAGE, &["10.1.2"]), None);
        assert_eq!(of(STORAGE, &["Sum:"]).unwrap()["sum"], 61_999, "no address of a node");
        let both = of(STORAGE, &["10.1.2.3", "10.1.2.30"]).unwrap();
        assert_eq!(both["ops-wr"], 21_506, "of all interfaces of a node");
    }

    #[test]
    fn lines_that_no_rule_takes_are_counted() {
        let titled = format!("====== 10 s ======\n{STORAGE}\n");
        assert_eq!(unknown(STORAGE), UnknownLines::default());
        assert_eq!(unknown(&titled), UnknownLines::default());
        for line in ["10.1.2.3 7 [sum] x [ack]", "10.1.2.3 7 [sum] 9", "10.1.2.3", "10.1.2.3 7 sum"] {
            let found = unknown(&format!("{line}\n{STORAGE}cut 1"));
            assert_eq!(found, UnknownLines { lines: 1, first: line.to_owned() });
        }
    }

    #[test]
    fn numbers_may_have_exponents_and_malformed_ones_count_nothing() {
        let number = |text: &str| of(&format!("a {text}\n"), &["a"]).unwrap().get("x").copied();
        assert_eq!(number("8.80804e+07 [x]  18446744073709551615 [y]"), Some(88_080_400));
        assert_eq!(number("84 [x]"), Some(84));
        let malformed = ["-1 [x]", "nan [x]", "inf [x]", "1e+30 [x]", "x [x]", "1 x", "1", "[x] 1"];
        for text in malformed.into_iter().chain(["99999999999999999999 [x]", "1 [y]  y 2 [x]"]) {
            assert_eq!(number(text), None, "{text}");
        }
        assert_eq!(of("a 1 [x]  2 [y", &["a"]), None, "cut off");
    }

    #[test]
    fn addresses_are_those_of_the_interfaces() {
        let found: Vec<String> = addresses(CLIENT_INFO).collect();
        assert_eq!(found, ["10.1.2.3", "10.1.2.3", "192.168.7.9"]);
        assert_eq!(addresses("x[ip addr: ]\n+ y[ip addr: 1.2.3.4").count(), 0);
    }
}
