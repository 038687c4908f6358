//! Binary file `gpu_metrics` of amdgpu. Source: `drivers/gpu/drm/amd/include/kgd_pp_interface.h` of Linux
//! (`gpu_metrics_v1_1` to `v1_8`, of discrete GPUs) and `amdgpu_smu.h` for the bits of throttling.

/// Size of the header: the size of the table, and the revisions of its format and content.
const HEADER_BYTES: usize = 4;

/// Reasons for lower clocks, each with its bits, which are the same in all chips.
pub(super) const REASONS: [(&str, u64); 4] = [
    ("power", 0x0000_0000_0000_ffff),
    ("current", 0x0000_0000_ffff_0000),
    ("temperature", 0x0000_ffff_0000_0000),
    ("other", 0xffff_0000_0000_0000),
];

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Table {
    /// Energy since the driver was loaded, in joules.
    pub(super) energy: Option<f64>,
    /// Bits of the reasons that lower the clocks now.
    pub(super) throttled: Option<u64>,
}

/// Parses a table. One that is cut off, or of another format (integrated GPUs), has no quantities.
#[expect(clippy::cast_precision_loss, reason = "2^53 units are 137 GJ")]
pub(super) fn parse(bytes: &[u8]) -> Table {
    let &[low, high, format, content, ..] = bytes else { return Table::default() };
    let size = usize::from(u16::from_le_bytes([low, high]));
    let Some(table) = bytes.get(..size).filter(|table| table.len() >= HEADER_BYTES && format == 1) else {
        return Table::default();
    };
    let energy = match content {
        1..=4 => word(table, 24),
        5 => word(table, 88),
        6..=8 => word(table, 16),
        _ => None,
    };
    // A unit is 2^-16 J.
    let energy = energy.map(|units| units as f64 / 65_536.0);
    Table { energy, throttled: if content == 3 { word(table, 112) } else { None } }
}

/// Word at an offset; `None` for all ones, which mean that the chip does not have it.
fn word(table: &[u8], offset: usize) -> Option<u64> {
    let bytes = table.get(offset..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes)).filter(|value| *value != u64::MAX)
}

pub(in crate::sources) fn check(data: &[u8]) {
    let Table { energy, throttled } = parse(data);
    assert!(energy.is_none_or(|joules| joules.is_finite() && joules >= 0.0));
    let bits = REASONS.iter().fold(0, |bits, (_, mask)| bits | mask);
    assert!(throttled.is_none_or(|throttled| throttled & !bits == 0));
}

#[cfg(test)]
pub(super) mod tests {
    use std::hint::black_box;

    use proptest::prelude::*;

    use super::*;

    pub(crate) fn table(content: u8, size: u16, words: &[(usize, u64)]) -> Vec<u8> {
        let mut bytes = vec![0xff; usize::from(size)];
        bytes[..2].copy_from_slice(&size.to_le_bytes());
        bytes[2..4].copy_from_slice(&[1, content]);
        for (offset, word) in words {
            bytes[*offset..offset + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn parses_the_revisions_of_several_chips() {
        // An MI200 (1.3) with a clock lowered by power and temperature, and an MI300 (1.4, 1.5, 1.6).
        let energy = 5_u64 << 17;
        let bits = 1 << 5 | 1 << 36;
        let v1_3 = parse(&table(3, 120, &[(24, energy), (112, bits)]));
        assert_eq!(v1_3, Table { energy: Some(10.0), throttled: Some(bits) });
        let reasons: Vec<&str> =
            REASONS.iter().filter(|(_, mask)| bits & mask != 0).map(|(reason, _)| *reason).collect();
        assert_eq!(reasons, ["power", "temperature"]);
        for (content, size, offset) in
            [(1, 80, 24), (2, 88, 24), (4, 288, 24), (5, 352, 88), (6, 312, 16), (8, 1000, 16)]
        {
            let table = parse(&table(content, size, &[(offset, energy)]));
            assert_eq!(table, Table { energy: Some(10.0), throttled: None }, "1.{content}");
        }
    }

    #[test]
    fn other_tables_have_nothing() {
        assert_eq!(parse(&table(3, 120, &[])), Table::default(), "all ones");
        let whole = table(3, 120, &[(24, 1), (112, 1)]);
        assert_eq!(parse(&whole[..100]), Table::default(), "cut off");
        assert_eq!(parse(&table(3, 30, &[])), Table::default(), "smaller than its revision");
        assert_eq!(parse(&table(0, 96, &[])), Table::default(), "1.0");
        assert_eq!(parse(&table(200, 96, &[(24, 1)])), Table::default(), "a revision to come");
        let mut integrated = whole;
        integrated[2] = 2;
        assert_eq!(parse(&integrated), Table::default());
        assert_eq!(parse(&[]), Table::default());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            black_box(parse(&bytes));
        }
    }
}
