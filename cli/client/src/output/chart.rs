//! Charts that take one line of a terminal. Pure.

use super::units;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Values of the lowest and the highest bar; none without values.
pub fn scale(means: &[Option<f64>]) -> Option<(f64, f64)> {
    let max = means.iter().flatten().copied().reduce(f64::max)?;
    let min = means.iter().flatten().copied().reduce(f64::min)?;
    // A base above zero would exaggerate noise.
    Some((min.min(0.0), max))
}

/// A bar for each value, and a blank for each absent one.
pub fn bars(means: &[Option<f64>]) -> String {
    let (base, max) = scale(means).unwrap_or((0.0, 0.0));
    means
        .iter()
        .copied()
        .map(|mean| match mean {
            None => ' ',
            Some(_) if max <= base => BARS.first().copied().unwrap_or(' '),
            Some(mean) => {
                BARS.get(units::part((mean - base) / (max - base), BARS.len())).copied().unwrap_or(' ')
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_shape_and_gaps() {
        assert_eq!(bars(&[Some(0.0), None, Some(7.0), Some(3.5)]), "▁ █▅");
    }
}
