//! Text that drivers of GPUs add to `/proc/PID/fdinfo/FD`. Source: `Documentation/gpu/drm-usage-stats.rst` of
//! Linux.

use std::collections::BTreeMap;

use crate::sources::UnknownLines;

/// Bound of the values of one client: the largest drivers have some dozens.
const VALUES_MAX: usize = 128;

/// A quantity that drivers state for each engine or region of memory of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sources) enum Quantity {
    /// Time in which an engine worked for the client, in nanoseconds.
    Time,
    /// Cycles in which an engine worked for the client.
    Cycles,
    /// All cycles of the same clock.
    TotalCycles,
    /// Number of engines of this class.
    Capacity,
    /// Memory that has pages, in bytes.
    Resident,
    /// Memory that was requested, in bytes.
    Total,
    /// Memory that other clients have, too, in bytes.
    Shared,
    /// Clients as the agent counts them. It has no name.
    Clients,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sources) struct Item {
    pub(in crate::sources) quantity: Quantity,
    /// Name as the driver states it: `compute`, `rcs`, `vram0`.
    pub(in crate::sources) name: String,
}

/// A client is an open file of a GPU, which several descriptors and processes may share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClientId {
    /// PCI address of the GPU: `0000:03:00.0`.
    pub(super) device: String,
    pub(super) number: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) id: ClientId,
    pub(super) values: BTreeMap<Item, u64>,
}

/// Prefixes of keys; a longer one stands before its own beginning.
const PREFIXES: [(&str, Quantity); 7] = [
    ("drm-engine-capacity-", Quantity::Capacity),
    ("drm-engine-", Quantity::Time),
    ("drm-cycles-", Quantity::Cycles),
    ("drm-total-cycles-", Quantity::TotalCycles),
    ("drm-total-", Quantity::Total),
    ("drm-resident-", Quantity::Resident),
    ("drm-shared-", Quantity::Shared),
];

/// Resident memory in the first versions of the format; later ones of amdgpu have both.
const OLD_RESIDENT: &str = "drm-memory-";

/// Beginnings of keys that are left out by name: who has the descriptor, clocks, and parts of the memory that
/// other keys include.
const LEFT_OUT: [&str; 6] =
    ["drm-driver", "drm-client-name", "drm-maxfreq-", "drm-curfreq-", "drm-active-", "drm-purgeable-"];

/// Parses the text of a client; `None` if the descriptor is of another type, or if its driver does not
/// identify clients. Malformed or incomplete lines have no value. Lines about GPUs that no rule takes go to
/// `unknown`: the keys that all drivers share begin with `drm-`.
pub(super) fn parse(text: &[u8], unknown: &mut UnknownLines) -> Option<Client> {
    let mut of_text = UnknownLines::default();
    let client = parse_lines(text, &mut of_text);
    if client.is_none() {
        of_text = UnknownLines::default();
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        lines
            .filter(|line| line.starts_with(b"drm-") && line.ends_with(b"\n"))
            .for_each(|line| of_text.add(line));
    }
    unknown.join(of_text);
    client
}

fn parse_lines(text: &[u8], unknown: &mut UnknownLines) -> Option<Client> {
    let (mut device, mut number) = (None, None);
    let (mut values, mut old) = (BTreeMap::new(), Vec::new());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Some(whole) = line.strip_suffix(b"\n") else { continue };
        let Some((key, value)) = std::str::from_utf8(whole).ok().and_then(|line| line.split_once(':')) else {
            if whole.starts_with(b"drm-") {
                unknown.add(whole);
            }
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        match key {
            "drm-pdev" => device = Some(value.to_owned()).filter(|value| !value.is_empty()),
            "drm-client-id" => number = value.parse().ok(),
            _ => {
                let (is_old, item) = match key.strip_prefix(OLD_RESIDENT) {
                    Some(name) => (true, Some((Quantity::Resident, name))),
                    None => (false, item(key)),
                };
                let named = item.filter(|(_, name)| !name.is_empty());
                let found = named.and_then(|(quantity, name)| {
                    Some((Item { quantity, name: name.to_owned() }, number_of(quantity, value)?))
                });
                match found {
                    Some(found) if is_old => old.push(found),
                    Some((item, value)) if values.len() < VALUES_MAX => drop(values.insert(item, value)),
                    Some(_) => unknown.add(whole),
                    None if !key.starts_with("drm-") => {}
                    None if LEFT_OUT.iter().any(|beginning| key.starts_with(beginning)) => {}
                    None => unknown.add(whole),
                }
            }
        }
    }
    for (item, value) in old.into_iter().take(VALUES_MAX) {
        values.entry(item).or_insert(value);
    }
    Some(Client { id: ClientId { device: device?, number: number? }, values })
}

fn item(key: &str) -> Option<(Quantity, &str)> {
    PREFIXES.iter().find_map(|(prefix, quantity)| Some((*quantity, key.strip_prefix(prefix)?)))
}

fn number_of(quantity: Quantity, text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace();
    let number = words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?;
    let number: u64 = number.parse().ok()?;
    let unit = words.next();
    let factor = match (quantity, unit) {
        (Quantity::Time, Some("ns")) => 1,
        (Quantity::Cycles | Quantity::TotalCycles | Quantity::Capacity, None) => 1,
        (Quantity::Resident | Quantity::Total | Quantity::Shared, unit) => match unit {
            None => 1,
            Some("KiB") => 1 << 10,
            Some("MiB") => 1 << 20,
            Some("GiB") => 1 << 30,
            Some(_) => return None,
        },
        _ => return None,
    };
    number.checked_mul(factor).filter(|_| words.next().is_none())
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use proptest::prelude::*;

    use super::*;

    fn parse(text: &[u8]) -> Option<Client> {
        super::parse(text, &mut UnknownLines::default())
    }

    const TEXTS: [(&str, &[u8]); 6] = [
        ("amdgpu-6.1", include_bytes!("../../../tests/drm/amdgpu-6.1")),
        ("amdgpu-6.13", include_bytes!("../../../tests/drm/amdgpu-6.13")),
        ("i915-6.1", include_bytes!("../../../tests/drm/i915-6.1")),
        ("i915-6.8", include_bytes!("../../../tests/drm/i915-6.8")),
        ("xe-6.8", include_bytes!("../../../tests/drm/xe-6.8")),
        ("xe-6.12", include_bytes!("../../../tests/drm/xe-6.12")),
    ];

    fn of(name: &str) -> Client {
        parse(TEXTS.iter().find(|(of, _)| *of == name).unwrap().1).unwrap()
    }

    fn unknown(text: &[u8]) -> UnknownLines {
        let mut unknown = UnknownLines::default();
        super::parse(text, &mut unknown);
        unknown
    }

    fn value(client: &Client, quantity: Quantity, name: &str) -> Option<u64> {
        client.values.get(&Item { quantity, name: name.to_owned() }).copied()
    }

    #[test]
    fn lines_that_no_rule_takes_are_counted() {
        for (name, text) in TEXTS {
            assert_eq!(unknown(text), UnknownLines::default(), "{name}");
            for (line, expected) in [
                ("drm-engine-compute:\t7 s\n", 1),
                ("drm-npu-busy: 3\n", 1),
                ("drm-\u{fffd}\n", 1),
                ("drm-client-name: drm-x\nvendor-x: 1\n", 0),
            ] {
                let first = if expected == 1 { line.trim_end().to_owned() } else { String::new() };
                let found = unknown(&[text, line.as_bytes()].concat());
                assert_eq!(found, UnknownLines { lines: expected, first }, "{name}");
            }
        }
        let anonymous = "drm-driver: panfrost\ndrm-client-id: 3\ndrm-engine-fragment: 1 ns\ndrm-cut-";
        let found = unknown(anonymous.as_bytes());
        assert_eq!((found.lines, found.first.as_str()), (3, "drm-driver: panfrost"), "no device");
        assert_eq!(unknown(b"pos: 0\nflags: 02\n"), UnknownLines::default(), "another file");
    }

    #[test]
    fn parses_the_texts_of_three_drivers() {
        let expected = [
            ("0000:c1:00.0", 42, 5),
            ("0000:c1:00.0", 460, 11),
            ("0000:00:02.0", 7, 5),
            ("0000:4d:00.0", 972, 17),
            ("0000:03:00.0", 3, 12),
            ("0000:03:00.0", 3, 25),
        ];
        for ((name, _), (device, number, values)) in TEXTS.iter().zip(expected) {
            let client = of(name);
            let identity = (client.id.device.as_str(), client.id.number, client.values.len());
            assert_eq!(identity, (device, number, values), "{name}");
        }
        use Quantity::{Capacity, Cycles, Resident, Shared, Time, Total, TotalCycles};
        for (name, quantity, item, expected) in [
            ("amdgpu-6.1", Resident, "vram", 48_044 << 10),
            ("amdgpu-6.1", Time, "gfx", 1_372_561_327),
            ("amdgpu-6.13", Resident, "vram", 40 << 20),
            ("amdgpu-6.13", Total, "vram", 44_564 << 10),
            ("amdgpu-6.13", Time, "enc_1", 7),
            ("i915-6.1", Time, "render", 9_288_864_723),
            ("i915-6.1", Capacity, "video", 2),
            ("i915-6.8", Time, "compute", 137_463_412_963),
            ("i915-6.8", Capacity, "video-enhance", 2),
            ("i915-6.8", Shared, "local0", 16 << 20),
            ("xe-6.8", Resident, "vram0", 23_992 << 10),
            ("xe-6.12", Cycles, "rcs", 28_257_900),
            ("xe-6.12", TotalCycles, "rcs", 7_655_183_225),
            ("xe-6.12", Capacity, "ccs", 4),
        ] {
            assert_eq!(value(&of(name), quantity, item), Some(expected), "{name} {quantity:?} {item}");
        }
        // `drm-memory-vram` is not used where there is the newer key.
        assert_eq!(value(&of("amdgpu-6.13"), Resident, "cpu"), Some(0));
        assert_eq!(value(&of("xe-6.12"), Total, "cycles-rcs"), None);
    }

    #[test]
    fn other_texts_are_no_client() {
        for text in [
            "",
            "pos:\t0\nflags:\t02\nmnt_id:\t9\n",
            // amdgpu before Linux 5.19.
            "pdev:\t0000:0a:00.0\npasid:\t32771\nvram mem:\t123 kB\ngfx0:\t5.50%\n",
            "drm-driver:\tnouveau\ndrm-pdev:\t0000:01:00.0\n",
            "drm-pdev:\t0000:01:00.0\ndrm-client-id:\t-1\n",
            "drm-pdev:\t\ndrm-client-id:\t1\n",
            "drm-pdev:\t0000:01:00.0\ndrm-client-id:\t1",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn values_that_are_malformed_are_left_out() {
        let text = "drm-pdev:\t0000:01:00.0\ndrm-client-id:\t1\n\
                    drm-engine-a:\t5\ndrm-engine-b:\t5 us\ndrm-engine-c:\t-5 ns\ndrm-engine-:\t5 ns\n\
                    drm-engine-d:\t99999999999999999999 ns\ndrm-engine-capacity-e:\t4 ns\n\
                    drm-resident-f:\t4 kB\ndrm-resident-g:\t18014398509481985 KiB\ndrm-resident-h:\t1 KiB 2\n\
                    drm-cycles-i:\t+1\ndrm-engine-j\t5 ns\ndrm-engine-k: 5 ns\ndrm-engine-l:\t6 ns";
        let values: Vec<_> = parse(text.as_bytes()).unwrap().values.into_iter().collect();
        assert_eq!(values, [(Item { quantity: Quantity::Time, name: "k".to_owned() }, 5)]);
    }

    #[test]
    fn the_number_of_values_is_bounded() {
        let engines: String = (0..1000).map(|engine| format!("drm-engine-{engine}:\t1 ns\n")).collect();
        let text = format!("drm-pdev:\t0\ndrm-client-id:\t1\n{engines}");
        assert_eq!(parse(text.as_bytes()).unwrap().values.len(), VALUES_MAX);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..300), at in 0..400_usize) {
            black_box(parse(&text));
            for (_, whole) in TEXTS {
                let at = at.min(whole.len());
                black_box(parse(&[&whole[..at], &text, &whole[at..]].concat()));
                // What is cut off is a part of the whole.
                if let (Some(cut), Some(whole)) = (parse(&whole[..at]), parse(whole)) {
                    prop_assert!(cut.values.iter().all(|(item, _)| whole.values.contains_key(item)));
                }
            }
        }
    }
}
