//! How often the energy lies in the error bar of the best source: over random loads and sources with noise,
//! delays, quantisation and uneven times.

use super::*;

const S: f64 = 1e9;

/// Jobs of one run of the test.
const JOBS: usize = 1000;

/// Seconds of load before and behind a job.
const MARGIN_S: f64 = 60.0;

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn number(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 32).unwrap()
    }

    /// From 0 to 1.
    fn part(&mut self) -> f64 {
        f64::from(self.number()) / f64::from(u32::MAX)
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.number() as usize % values.len()]
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.part()
    }

    /// The same on a logarithmic scale.
    fn of_scale(&mut self, least: f64, most: f64) -> f64 {
        (least.ln() + (most / least).ln() * self.part()).exp()
    }

    /// Of the normal distribution, nearly.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.part()).sum::<f64>() - 6.0
    }
}

/// Power that is constant in each part of a time, with the energy up to it.
struct Load {
    /// Begin, power, and energy before it.
    parts: Vec<(f64, f64, f64)>,
}

impl Load {
    fn random(random: &mut Random, length_s: f64) -> Self {
        let (mean_s, idle, most) =
            (random.of_scale(0.5, 200.0), random.between(80.0, 200.0), random.between(250.0, 900.0));
        // Programs change between few levels, or among many.
        let is_burst = random.part() < 0.5;
        let (mut parts, mut at_s, mut joules) = (Vec::new(), -2.0 * MARGIN_S, 0.0);
        while at_s < length_s + 2.0 * MARGIN_S {
            let level = if is_burst { random.part().round() } else { random.part() };
            let (watts, part_s) = (idle + (most - idle) * level, -mean_s * random.part().max(1e-9).ln());
            parts.push((at_s, watts, joules));
            (at_s, joules) = (at_s + part_s, joules + watts * part_s);
        }
        Self { parts }
    }

    fn joules(&self, at_s: f64) -> f64 {
        let next = self.parts.partition_point(|(begin_s, ..)| *begin_s <= at_s);
        let (begin_s, watts, joules) = self.parts[next.saturating_sub(1)];
        joules + watts * (at_s - begin_s)
    }

    fn watts(&self, at_s: f64) -> f64 {
        self.parts[self.parts.partition_point(|(begin_s, ..)| *begin_s <= at_s).saturating_sub(1)].1
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Power at an instant.
    Instant,
    /// Mean power since the value before.
    Mean,
    Counter,
}

#[derive(Debug, Clone, Copy)]
struct Source {
    kind: Kind,
    period_s: f64,
    delay_s: f64,
    /// Standard deviation of a power, as a part of it.
    noise: f64,
    /// Watts, or joules of a counter.
    step: f64,
}

impl Source {
    fn fast(random: &mut Random) -> Self {
        let period_s = random.one_of(&[0.1, 0.2, 0.5, 1.0]);
        let kind = random.one_of(&[Kind::Instant, Kind::Mean, Kind::Counter]);
        let step = random.one_of(&[0.01, 0.1, 1.0]);
        Self {
            kind,
            period_s,
            delay_s: random.between(0.0, period_s),
            noise: random.between(0.0, 0.02),
            step,
        }
    }

    fn slow(random: &mut Random) -> Self {
        let kind = if random.part() < 0.5 { Kind::Instant } else { Kind::Mean };
        let (period_s, delay_s) = (random.one_of(&[1.0, 2.0, 5.0]), random.between(0.0, 10.0));
        Self {
            kind,
            period_s,
            delay_s,
            noise: random.between(0.0, 0.02),
            step: random.one_of(&[1.0, 2.0, 4.0, 8.0]),
        }
    }

    fn measure(&self, random: &mut Random, load: &Load, length_s: f64) -> Cumulative {
        let mut samples = Vec::new();
        let (mut at_s, mut before_s) = (-MARGIN_S + self.period_s * random.part(), None);
        while at_s < length_s + MARGIN_S {
            let time_s = at_s + self.period_s * random.between(-0.05, 0.05);
            let of_s = time_s - self.delay_s;
            let since_s = before_s.unwrap_or(of_s - self.period_s);
            let value = match self.kind {
                Kind::Instant => load.watts(of_s) * (1.0 + self.noise * random.normal()),
                Kind::Mean => {
                    let watts = (load.joules(of_s) - load.joules(since_s)) / (of_s - since_s);
                    watts * (1.0 + self.noise * random.normal())
                }
                Kind::Counter => load.joules(of_s),
            };
            #[expect(clippy::cast_possible_truncation, reason = "seconds")]
            samples.push((
                START_NS + (time_s * S) as i64,
                match self.kind {
                    Kind::Counter => (value / self.step).floor() * self.step,
                    Kind::Instant | Kind::Mean => (value / self.step).round() * self.step,
                },
            ));
            (at_s, before_s) = (at_s + self.period_s, Some(of_s));
        }
        match self.kind {
            Kind::Counter => Cumulative::of_samples(&samples),
            Kind::Instant | Kind::Mean => Cumulative::of_rate(samples),
        }
    }
}

const START_NS: i64 = 1_790_000_000_000_000_000;

/// A random job: its sources, its energy, and the energy with the error bar of the best source.
fn job(random: &mut Random) -> (Vec<Source>, f64, Option<(f64, f64)>) {
    let length_s = random.of_scale(60.0, 900.0);
    let load = Load::random(random, length_s);
    let mut sources = vec![Source::fast(random)];
    for _ in 0..random.one_of(&[0, 1, 2]) {
        sources.push(Source::slow(random));
    }
    let energies: Vec<Cumulative> =
        sources.iter().map(|source| source.measure(random, &load, length_s)).collect();
    let of: Vec<EnergySource<'_>> = energies
        .iter()
        .zip(&sources)
        .map(|(energy, source)| EnergySource {
            energy,
            covered: Covered::Node,
            is_power: !matches!(source.kind, Kind::Counter),
        })
        .collect();
    #[expect(clippy::cast_possible_truncation, reason = "seconds")]
    let span_ns = START_NS..START_NS + (length_s * S) as i64;
    let expected = load.joules(length_s) - load.joules(0.0);
    let found = reconcile(&of, &span_ns).and_then(|found| {
        let best = found.best?;
        Some((found.sources[best]?.joules, found.error_joules))
    });
    (sources, expected, found)
}

/// 980 of 1000, of those with one source 99 %. Half of the bars are shorter than 0.5 % of the energy in both
/// directions. Most of the others are where a slow source has the period of the fast one, so that nothing
/// tells which of both is late.
#[test]
fn the_energy_lies_in_the_error_bar_of_19_of_20_jobs() {
    let mut random = Random(36);
    let (mut within, mut within_alone, mut alone, mut lengths) = (0, 0, 0, Vec::new());
    for _ in 0..JOBS {
        let (sources, expected, found) = job(&mut random);
        let (joules, error_joules) = found.unwrap_or_else(|| panic!("{sources:?}"));
        let is_within = (joules - expected).abs() <= error_joules;
        within += u64::from(is_within);
        if sources.len() == 1 {
            alone += 1;
            within_alone += u64::from(is_within);
        }
        lengths.push(error_joules / expected);
    }
    lengths.sort_by(f64::total_cmp);
    let part = |count: u64, all: u64| to_f64(count) / to_f64(all);
    let (all, of_one) = (part(within, JOBS as u64), part(within_alone, alone));
    assert!(all >= 0.95 && of_one >= 0.95, "{all}, of one source {of_one}");
    // A bar that contains everything would say nothing.
    let half = lengths[JOBS / 2];
    assert!(half < 0.005, "{half}");
}
