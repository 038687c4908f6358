//! How often the energy lies in the error bar of the best source: over random loads and sources with noise,
//! delays, quantisation and uneven times.

use super::*;

const S: f64 = 1e9;

/// Jobs of one run of the test.
const JOBS: usize = 1500;

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
        let step = if matches!(kind, Kind::Counter) {
            random.of_scale(0.01, 20.0)
        } else {
            random.of_scale(0.01, 2.0)
        };
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
            samples.push((START_NS + (time_s * S) as i64, (value / self.step).floor() * self.step));
            (at_s, before_s) = (at_s + self.period_s, Some(of_s));
        }
        match self.kind {
            Kind::Counter => Cumulative::of_samples(&samples),
            Kind::Instant | Kind::Mean => Cumulative::of_rate(samples),
        }
    }
}

const START_NS: i64 = 1_790_000_000_000_000_000;

/// A random job with its energy and what the sources say.
fn job(random: &mut Random) -> (Vec<Source>, f64, Option<(f64, f64, usize)>) {
    let length_s = random.of_scale(60.0, 1800.0);
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
        Some((found.sources[best]?.joules, found.error_joules, best))
    });
    (sources, expected, found)
}

#[test]
fn the_energy_lies_in_the_error_bar_of_19_of_20_jobs() {
    let mut random = Random(36);
    let (mut within, mut alone, mut of_alone) = (0, 0, 0);
    let mut by_kind: std::collections::BTreeMap<String, (u32, u32, f64)> = Default::default();
    let mut lengths = Vec::new();
    for _ in 0..JOBS {
        let (sources, expected, found) = job(&mut random);
        let (joules, error_joules, best) = found.unwrap_or_else(|| panic!("{sources:?}"));
        let is_within = (joules - expected).abs() <= error_joules;
        within += usize::from(is_within);
        lengths.push(error_joules / expected);
        if sources.len() == 1 {
            alone += 1;
            of_alone += usize::from(is_within);
        }
        let key =
            format!("{:?} {} best {best} of {}", sources[best].kind, sources[best].period_s, sources.len());
        let entry = by_kind.entry(key).or_default();
        entry.0 += 1;
        entry.1 += u32::from(is_within);
        entry.2 += (joules - expected).abs() / error_joules.max(1e-9);
    }
    lengths.sort_by(f64::total_cmp);
    let part = |count: usize, all: usize| to_f64(count as u64) / to_f64(all as u64);
    let figure = part(within, JOBS);
    println!(
        "all {figure}, alone {}, median length {}, 90 % {}",
        part(of_alone, alone),
        lengths[JOBS / 2],
        lengths[JOBS * 9 / 10]
    );
    for (key, (count, within, ratio)) in by_kind {
        println!("{key}: {within} of {count}, mean ratio {}", ratio / f64::from(count));
    }
    assert!((0.95..0.999).contains(&figure), "{figure}");
}
