//! Search for the symbols of some addresses in a table that is read once, in any order, and not kept. Pure.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range<N> {
    pub(super) start: u64,
    /// Exclusive.
    pub(super) end: u64,
    /// `None` if the range has no symbol.
    pub(super) name: Option<N>,
}

#[derive(Debug, Clone)]
struct Symbol<N> {
    start: u64,
    /// Equal to the start if the size is unknown.
    end: u64,
    name: N,
}

/// Symbols that begin between two wanted addresses: above one, and at or below the next.
#[derive(Debug, Clone)]
struct Gap<N> {
    lowest: u64,
    /// The one that begins last.
    last: Option<Symbol<N>>,
    /// The one that ends last.
    widest: Option<Symbol<N>>,
}

/// Search for the symbols of `wanted`, which is in order and has no address twice.
#[derive(Debug)]
pub(super) struct Search<'a, N> {
    wanted: &'a [u64],
    gaps: Vec<Gap<N>>,
}

impl<'a, N: Clone> Search<'a, N> {
    pub(super) fn new(wanted: &'a [u64]) -> Self {
        let gap = Gap { lowest: u64::MAX, last: None, widest: None };
        Self { wanted, gaps: vec![gap; wanted.len() + 1] }
    }

    /// Takes a symbol of the table. `join` adds it to one with the same begin and size.
    pub(super) fn offer(&mut self, start: u64, size: u64, name: impl Fn() -> N, join: impl Fn(&mut N)) {
        let place = self.wanted.partition_point(|wanted| *wanted < start);
        let Some(gap) = self.gaps.get_mut(place) else { return };
        gap.lowest = gap.lowest.min(start);
        let end = start.saturating_add(size);
        let symbol = || Symbol { start, end, name: name() };
        match &mut gap.last {
            Some(last) if (last.start, last.end) == (start, end) => join(&mut last.name),
            Some(last) if (start, end) < (last.start, last.end) => {}
            last => *last = Some(symbol()),
        }
        match &mut gap.widest {
            Some(widest) if (widest.start, widest.end) == (start, end) => join(&mut widest.name),
            Some(widest) if end <= widest.end => {}
            widest => *widest = Some(symbol()),
        }
    }

    /// A range for each wanted address, which contains it.
    pub(super) fn finish(self) -> Vec<Range<N>> {
        let mut found = Vec::with_capacity(self.wanted.len());
        let mut nexts = vec![u64::MAX; self.gaps.len()];
        let mut next = u64::MAX;
        for (gap, place) in self.gaps.iter().zip(&mut nexts).rev() {
            *place = next;
            next = next.min(gap.lowest);
        }
        let (mut last, mut widest): (Option<Symbol<N>>, Option<Symbol<N>>) = (None, None);
        for ((wanted, gap), next) in self.wanted.iter().zip(self.gaps).zip(nexts) {
            last = gap.last.or(last);
            if let Some(symbol) = gap.widest
                && widest.as_ref().is_none_or(|widest| widest.end < symbol.end)
            {
                widest = Some(symbol);
            }
            found.push(range(*wanted, next, last.as_ref(), widest.as_ref()));
        }
        found
    }
}

fn range<N: Clone>(wanted: u64, next: u64, last: Option<&Symbol<N>>, widest: Option<&Symbol<N>>) -> Range<N> {
    let alone = |name| Range { start: wanted, end: wanted.saturating_add(1), name };
    match (last, widest) {
        (Some(last), _) if wanted < last.end => {
            Range { start: last.start, end: last.end.min(next), name: Some(last.name.clone()) }
        }
        // The symbol around one that has ended.
        (Some(_), Some(widest)) if wanted < widest.end => alone(Some(widest.name.clone())),
        // A function without a size, as of the assembler, ends where the next begins.
        (Some(last), _) if last.start == last.end && next < u64::MAX => {
            Range { start: last.start, end: next, name: Some(last.name.clone()) }
        }
        (Some(last), _) if last.start == last.end => alone(Some(last.name.clone())),
        (_, widest) => Range { start: widest.map_or(0, |widest| widest.end), end: next, name: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_gets_the_symbol_around_it() {
        let wanted = [5, 10, 19, 25, 30, 45, 60, 99];
        let mut search = Search::new(&wanted);
        for (start, size, name) in
            [(40, 30, "outer"), (10, 10, "a"), (42, 2, "inner"), (28, 0, "b"), (70, 5, "c")]
        {
            search.offer(start, size, || name, |_| {});
        }
        let range = |start, end, name: &'static str| Range { start, end, name: Some(name) };
        let nothing = |start, end| Range { start, end, name: None };
        assert_eq!(
            search.finish(),
            [
                nothing(0, 10),
                range(10, 20, "a"),
                range(10, 20, "a"),
                nothing(20, 28),
                range(28, 40, "b"),
                range(45, 46, "outer"),
                range(60, 61, "outer"),
                nothing(75, u64::MAX),
            ]
        );
        assert!(Search::<()>::new(&[]).finish().is_empty());
    }

    /// Against the plain definition: the symbol with the latest begin that contains the address.
    #[test]
    fn a_search_finds_what_a_plain_one_does() {
        use proptest::prelude::*;
        let symbols = prop::collection::vec((0_u64..200, 1_u64..30), 0..40);
        let wanted = prop::collection::btree_set(0_u64..230, 0..40);
        proptest!(|(symbols in symbols, wanted in wanted)| {
            let wanted: Vec<u64> = wanted.into_iter().collect();
            let mut search = Search::new(&wanted);
            for (number, (start, size)) in symbols.iter().enumerate() {
                search.offer(*start, *size, || number, |joined| *joined = number);
            }
            for (wanted, range) in wanted.iter().zip(search.finish()) {
                prop_assert!(range.start <= *wanted && *wanted < range.end, "{range:?} of {wanted}");
                let contains = |at: u64, (start, size): &(u64, u64)| *start <= at && at < start + size;
                let any = symbols.iter().any(|symbol| contains(*wanted, symbol));
                prop_assert_eq!(range.name.is_some(), any);
                prop_assert!(range.name.is_none_or(|name| contains(*wanted, &symbols[name])));
                if range.name.is_none() {
                    let free = (range.start..range.end.min(300)).all(|at| !symbols.iter().any(|s| contains(at, s)));
                    prop_assert!(free, "{range:?} is not without symbols");
                }
            }
        });
    }
}
