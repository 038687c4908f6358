//! Search for known words similar to an unknown one.

/// Similar words may differ in one character, and in one more for each so many characters.
const CHARACTERS_PER_DIFFERENCE: usize = 3;

/// Longest word with suggestions, in characters: the time of the search grows with its square.
const CHARACTERS_MAX: usize = 256;

/// Returns the candidates similar to `word`, each once, the most similar first.
pub fn similar<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let length = word.chars().count();
    if length == 0 || length > CHARACTERS_MAX {
        return Vec::new();
    }
    let distance_max = length / CHARACTERS_PER_DIFFERENCE + 1;
    let mut found: Vec<(usize, &str)> = Vec::new();
    for candidate in candidates {
        if candidate.chars().count().abs_diff(length) > distance_max {
            continue;
        }
        let distance = strsim::damerau_levenshtein(word, candidate);
        if distance <= distance_max && found.iter().all(|(_, known)| *known != candidate) {
            found.push((distance, candidate));
        }
    }
    found.sort_by_key(|(distance, _)| *distance);
    found.into_iter().map(|(_, candidate)| candidate).collect()
}

pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    similar(word, candidates).into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_similar_words_only() {
        let known = ["node", "cluster", "collector", "collector_key"];
        assert_eq!(nearest("nod", known), Some("node"));
        assert_eq!(nearest("colector", known), Some("collector"));
        assert_eq!(nearest("ndoe", known), Some("node"), "two characters are transposed");
        assert_eq!((nearest("xyz", known), nearest("", known), nearest("node", [])), (None, None, None));
        assert_eq!(nearest(&"n".repeat(1_000_000), known), None);
    }

    #[test]
    fn similar_words_are_listed_once_by_similarity() {
        let ids = ["4242", "4243", "4244", "4199", "91", "91", "run-7-1795177077"];
        assert_eq!(similar("4244", ids), ["4244", "4242", "4243"]);
        assert_eq!(similar("99", ids), ["91"]);
        assert_eq!(similar("run-7-1795177078", ids), ["run-7-1795177077"]);
        assert!(similar("somebody's", ids).is_empty());
    }
}
