//! Carbon dioxide of the energy of a job, by a series of intensities that a device states. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use polymeter_proto::series::ALL_NODES;
use polymeter_store::reader::SeriesRow;

use crate::cumulative::Cumulative;
use crate::model::NodeEnergy;

/// Unit of an intensity: grams of carbon dioxide for each kilowatt-hour.
const UNIT: &str = "gCO2/kWh";

/// Joules of a kilowatt-hour.
const KILOWATT_HOUR: f64 = 3.6e6;

/// Intensities of nodes, each from its time on.
#[derive(Debug, Default)]
pub(crate) struct Intensities(BTreeMap<String, Vec<(i64, f64)>>);

pub(crate) fn is_intensity(row: &SeriesRow) -> bool {
    row.kind == "gauge" && row.labels.get("unit") == Some(UNIT)
}

impl Intensities {
    /// Adds the values of a series, sorted by time. Of several of a node the first counts.
    pub(crate) fn add(&mut self, row: &SeriesRow, values: impl Iterator<Item = (i64, f64)>) {
        let values = values.filter(|(_, value)| value.is_finite());
        self.0.entry(row.node.clone()).or_insert_with(|| values.collect());
    }

    /// Grams of the energy of a node over a time, by the intensities of the node, else by those of all nodes;
    /// none without any.
    pub(crate) fn grams(&self, node: &str, energy: &NodeEnergy, span_ns: &Range<i64>) -> Option<f64> {
        let of_node = self.0.get(node).filter(|values| !values.is_empty());
        let intensities = of_node.or_else(|| self.0.get(ALL_NODES))?;
        energy.parts.iter().map(|part| grams(&part.energy, span_ns, intensities)).sum()
    }
}

/// Grams of an energy. An intensity holds from its time on, the first also before; none without any.
fn grams(energy: &Cumulative, span_ns: &Range<i64>, intensities: &[(i64, f64)]) -> Option<f64> {
    intensities.first()?;
    let mut grams = 0.0;
    let ends = intensities.iter().skip(1).map(|(time_ns, _)| *time_ns).chain([i64::MAX]);
    let mut begin_ns = span_ns.start;
    for ((_, intensity), end_ns) in intensities.iter().zip(ends) {
        let end_ns = end_ns.clamp(begin_ns, span_ns.end.max(begin_ns));
        grams += energy.within(&(begin_ns..end_ns)) / KILOWATT_HOUR * intensity;
        begin_ns = end_ns;
    }
    // Energy beyond the first and the last sample is that of the rest.
    let sampled = energy.within(span_ns);
    let total = energy.increase(span_ns)?;
    Some(if sampled > 0.0 { grams * total / sampled } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::Labels;

    use super::*;
    use crate::model::MeasuredPart;

    const S: i64 = 1_000_000_000;

    fn row(node: &str, unit: &str) -> SeriesRow {
        let labels = [("device", "grid"), ("node", node), ("unit", unit)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        SeriesRow {
            series_id: 1,
            node: node.to_owned(),
            metric: "device.grid.intensity".to_owned(),
            unit: "labelled".to_owned(),
            kind: "gauge".to_owned(),
            labels: Labels::new(labels.to_vec()).unwrap(),
        }
    }

    /// Power at a second: a ramp, a plateau, and no power.
    fn watts(second: f64) -> f64 {
        if second < 1000.0 {
            second / 2.0
        } else if second < 2500.0 {
            500.0
        } else {
            0.0
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn counter() -> Cumulative {
        let mut joules = 0.0;
        let samples = (-60..=3660).map(|second: i64| {
            joules += watts(second as f64 + 0.5).max(0.0);
            ((second + 1) * S, joules)
        });
        Cumulative::of_samples(&samples.collect::<Vec<_>>())
    }

    /// Integrates in steps of a tenth of a second, apart from all code of the crate.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn integrated(span_s: Range<i64>, intensities: &[(i64, f64)]) -> f64 {
        let mut grams = 0.0;
        for tenth in span_s.start * 10..span_s.end * 10 {
            let second = (tenth as f64 + 0.5) / 10.0;
            let in_force = intensities.iter().rev().find(|(from_ns, _)| (*from_ns as f64) / 1e9 <= second);
            let (_, intensity) = in_force.or(intensities.first()).unwrap();
            grams += watts(second) * 0.1 / 3.6e6 * intensity;
        }
        grams
    }

    #[test]
    fn grams_are_the_integral_of_power_and_intensity() {
        // Irregular times: long before the job, twice within a minute, and behind its end.
        let irregular =
            [(-3000, 80.0), (-7, 412.5), (613, 95.0), (640, 700.0), (1999, 20.0), (2400, 333.0), (9000, 1e6)];
        let irregular = irregular.map(|(second, value): (i64, f64)| (second * S, value));
        for intensities in [&irregular[..], &irregular[2..], &irregular[..1], &irregular[6..]] {
            for span_s in [0..3600, 300..2450, 600..700] {
                let span_ns = span_s.start * S..span_s.end * S;
                let found = grams(&counter(), &span_ns, intensities).unwrap();
                let expected = integrated(span_s.clone(), intensities);
                assert!((found / expected - 1.0).abs() < 2e-3, "{span_s:?}: {found}, not {expected}");
            }
        }
        assert_eq!(grams(&counter(), &(0..3600 * S), &[]), None);
        assert_eq!(grams(&counter(), &(2600 * S..3600 * S), &irregular), Some(0.0), "no energy, no carbon");
    }

    #[test]
    fn the_intensity_of_a_node_precedes_that_of_all_nodes() {
        assert!(is_intensity(&row("*", "gCO2/kWh")) && !is_intensity(&row("*", "EUR/MWh")));
        let part = MeasuredPart { part: "node", source: "power".to_owned(), energy: counter() };
        let energy = NodeEnergy { parts: vec![part.clone(), part], is_estimate: false, error_joules: None };
        let mut intensities = Intensities::default();
        let span_ns = 1000 * S..2000 * S;
        assert_eq!(intensities.grams("n1", &energy, &span_ns), None);
        intensities.add(&row("*", "gCO2/kWh"), [(0, 360.0)].into_iter());
        intensities.add(&row("n2", "gCO2/kWh"), [(0, 36.0), (5, f64::NAN)].into_iter());
        intensities.add(&row("n2", "gCO2/kWh"), [(0, 1e9)].into_iter());
        let of = |node: &str| intensities.grams(node, &energy, &span_ns).unwrap().round();
        // 500 W for 1000 s, twice.
        assert_eq!((of("n1"), of("n2")), (100.0, 10.0));
    }
}
