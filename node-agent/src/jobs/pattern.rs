//! Patterns of job cgroups: `slurm*/uid_{uid}/job_{job}`.

use std::fmt;
use std::str::FromStr;

/// What a pattern can capture.
const CAPTURES: [&str; 3] = ["job", "uid", "user"];

/// A relative path whose parts may have wildcards (`*`) and captures (`{job}`, `{uid}`, `{user}`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    parts: Vec<Vec<Token>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(String),
    Any,
    Capture(&'static str),
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidPattern(String);

impl fmt::Display for InvalidPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidPattern {}

/// What a path told of its job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// The job's id.
    pub job: Option<String>,
    /// The owner's numeric id.
    pub uid: Option<u32>,
    /// The owner's name.
    pub user: Option<String>,
}

impl Captured {
    fn set(&mut self, capture: &str, value: &str) -> bool {
        match capture {
            "job" => self.job = Some(value.to_owned()),
            "user" => self.user = Some(value.to_owned()),
            _ => match value.parse() {
                Ok(uid) => self.uid = Some(uid),
                Err(_) => return false,
            },
        }
        true
    }
}

impl Pattern {
    /// How many directories deep the job's cgroup lies.
    pub fn depth(&self) -> usize {
        self.parts.len()
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What the name of a directory at `depth` (from 0) tells; none if the pattern does not allow it there.
    pub fn matches_part(&self, depth: usize, name: &str, so_far: &Captured) -> Option<Captured> {
        let mut captured = so_far.clone();
        matches(self.parts.get(depth)?, name, &mut captured).then_some(captured)
    }
}

/// Literal text as it stands; wildcards and captures take as little as they can, and a capture at least one character.
fn matches(tokens: &[Token], name: &str, captured: &mut Captured) -> bool {
    let Some((token, rest)) = tokens.split_first() else { return name.is_empty() };
    match token {
        Token::Literal(literal) => {
            name.strip_prefix(literal.as_str()).is_some_and(|name| matches(rest, name, captured))
        }
        Token::Any | Token::Capture(_) => {
            let least = usize::from(*token != Token::Any);
            let ends = (0..=name.len()).filter(|end| *end >= least && name.is_char_boundary(*end));
            for (taken, left) in ends.filter_map(|end| name.split_at_checked(end)) {
                let mut attempt = captured.clone();
                let fits = match token {
                    Token::Capture(capture) => attempt.set(capture, taken),
                    Token::Any | Token::Literal(_) => true,
                };
                if fits && matches(rest, left, &mut attempt) {
                    *captured = attempt;
                    return true;
                }
            }
            false
        }
    }
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let refuse = |why: &str| Err(InvalidPattern(format!("`{text}` is no pattern of cgroups: {why}")));
        let relative = text.trim_matches('/');
        if relative.is_empty() {
            return refuse("it is empty; write something like `slurm/uid_{uid}/job_{job}`");
        }
        let mut parts = Vec::new();
        for part in relative.split('/') {
            if matches!(part, "" | "." | "..") {
                return refuse("it has an empty part, `.` or `..`");
            }
            match tokens(part) {
                Some(tokens) => parts.push(tokens),
                None => return refuse("only {job}, {uid}, {user} and * stand for something"),
            }
        }
        let jobs = parts.iter().flatten().filter(|token| **token == Token::Capture("job")).count();
        if jobs != 1 {
            return refuse("it needs {job} exactly once");
        }
        Ok(Self { text: relative.to_owned(), parts })
    }
}

fn tokens(part: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = part;
    while let Some(first) = rest.chars().next() {
        match first {
            '*' => {
                tokens.push(Token::Any);
                rest = rest.strip_prefix('*')?;
            }
            '{' => {
                let (name, behind) = rest.strip_prefix('{')?.split_once('}')?;
                tokens.push(Token::Capture(CAPTURES.into_iter().find(|capture| *capture == name)?));
                rest = behind;
            }
            '}' => return None,
            _ => {
                let end = rest.find(['*', '{', '}']).unwrap_or(rest.len());
                let (literal, behind) = rest.split_at_checked(end)?;
                tokens.push(Token::Literal(literal.to_owned()));
                rest = behind;
            }
        }
    }
    Some(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(pattern: &str, path: &str) -> Option<Captured> {
        let pattern: Pattern = pattern.parse().unwrap();
        let mut captured = Captured::default();
        let parts: Vec<&str> = path.split('/').collect();
        assert_eq!(parts.len(), pattern.depth());
        for (depth, part) in parts.iter().enumerate() {
            captured = pattern.matches_part(depth, part, &captured)?;
        }
        Some(captured)
    }

    #[test]
    fn captures_job_and_owner() {
        let slurm = capture("slurm*/uid_{uid}/job_{job}", "slurm_n1/uid_1000/job_42").unwrap();
        assert_eq!((slurm.job.as_deref(), slurm.uid), (Some("42"), Some(1000)));
        let oar = capture("oar/{user}_{job}", "oar/anna_b_7").unwrap();
        assert_eq!((oar.user.as_deref(), oar.job.as_deref()), (Some("anna"), Some("b_7")));
        let slice = capture(
            "oar.slice/oar-u{uid}.slice/oar-u*-j{job}.slice",
            "oar.slice/oar-u1000.slice/oar-u1000-j5.slice",
        )
        .unwrap();
        assert_eq!(slice.job.as_deref(), Some("5"));
    }

    #[test]
    fn what_does_not_fit_is_no_job() {
        assert_eq!(capture("slurm/uid_{uid}/job_{job}", "slurm/uid_x/job_1"), None);
        assert_eq!(capture("slurm/uid_{uid}/job_{job}", "slurm/uid_1/job_"), None);
        assert_eq!(capture("slurm/uid_{uid}/job_{job}", "slurm_n/uid_1/job_1"), None);
    }

    #[test]
    fn bad_patterns_say_what_is_missing() {
        for (pattern, word) in [
            ("", "empty"),
            ("a/b", "{job} exactly once"),
            ("{job}/{job}", "exactly once"),
            ("{jobs}", "only {job}"),
            ("a/../{job}", "`..`"),
            ("a{job", "only {job}"),
            ("a}{job}", "only {job}"),
        ] {
            let error = pattern.parse::<Pattern>().unwrap_err().to_string();
            assert!(error.contains(word), "{pattern}: {error}");
        }
    }
}
