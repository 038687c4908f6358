//! The search for a known word similar to an unknown one.

/// The minimum similarity of a suggested word by Jaro-Winkler, which is 1 for equal words.
const SIMILARITY_MIN: f64 = 0.8;

/// Returns the candidate most similar to `word`, if it is similar enough.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = candidates.into_iter().map(|candidate| (strsim::jaro_winkler(word, candidate), candidate));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (best.0 >= SIMILARITY_MIN).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_similar_words_only() {
        let known = ["node", "cluster", "collector", "collector_key"];
        assert_eq!(nearest("nod", known), Some("node"));
        assert_eq!(nearest("colector", known), Some("collector"));
        assert_eq!(nearest("xyz", known), None);
        assert_eq!(nearest("node", []), None);
    }
}
