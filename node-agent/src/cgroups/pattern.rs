//! Patterns of job cgroups: `slurm*/uid_{uid}/job_{job}`, `*.slice/*slurmstepd.scope/{sluid}`.

use std::str::FromStr;

/// A job's id, the same if it is a number or a SLUID of Slurm, and its owner.
const CAPTURES: [&str; 5] = ["job", "number", "sluid", "uid", "user"];

/// Digits of a SLUID behind its `s`: Crockford's base 32 in capitals, `src/common/sluid.h` of Slurm.
const SLUID_DIGITS: &[u8] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const SLUID_LENGTH: usize = 14;

/// True if a name has the form of a SLUID, by which Slurm names jobs' cgroups from 26.05 on.
pub fn is_sluid(name: &str) -> bool {
    let digits = name.strip_prefix('s').unwrap_or_default();
    name.len() == SLUID_LENGTH && digits.bytes().all(|digit| SLUID_DIGITS.contains(&digit))
}

/// A relative path whose parts may have wildcards (`*`) and captures (`{job}`, `{number}`, `{sluid}`,
/// `{uid}`, `{user}`).
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

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPattern(String);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// Job's id, or a substitute for it.
    pub job: Option<String>,
    /// True if it is a SLUID, which users do not know the job by.
    pub is_sluid: bool,
    pub uid: Option<u32>,
    pub user: Option<String>,
}

impl Captured {
    fn set(&mut self, capture: &str, value: &str) -> bool {
        match capture {
            "job" => self.job = Some(value.to_owned()),
            "number" if value.bytes().all(|byte| byte.is_ascii_digit()) => self.job = Some(value.to_owned()),
            "number" => return false,
            "sluid" if is_sluid(value) => (self.job, self.is_sluid) = (Some(value.to_owned()), true),
            "sluid" => return false,
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
    pub fn depth(&self) -> usize {
        self.parts.len()
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Matches the name of a directory at `depth` (from 0), and returns the captures. Names of units are
    /// captured as they were before systemd escaped them.
    pub fn matches_part(&self, depth: usize, name: &str, so_far: &Captured) -> Option<Captured> {
        let mut captured = so_far.clone();
        let tokens = self.parts.get(depth)?;
        let Some(unit) = unit_name(name) else {
            return matches(tokens, name, &mut captured).then_some(captured);
        };
        if !matches(tokens, unit, &mut captured) {
            return None;
        }
        for token in tokens {
            match token {
                Token::Capture("user") => captured.user = captured.user.as_deref().map(unescape),
                Token::Capture("job") => captured.job = captured.job.as_deref().map(unescape),
                Token::Capture(_) | Token::Any | Token::Literal(_) => {}
            }
        }
        Some(captured)
    }

    /// Returns the captures of a path. What follows the pattern's parts is ignored.
    pub fn captures(&self, path: &str) -> Option<Captured> {
        let mut names = path.trim_matches('/').split('/');
        (0..self.depth()).try_fold(Captured::default(), |captured, depth| {
            self.matches_part(depth, names.next()?, &captured)
        })
    }

    /// How the names begin of the slices that systemd nests in the slice `name`, if the pattern may match one
    /// of them at `depth`: systemd makes `a-b.slice` in `a.slice`.
    pub fn nested_at(&self, depth: usize, name: &str) -> Option<String> {
        let tokens = self.parts.get(depth)?;
        let is_slice = matches!(tokens.last()?, Token::Literal(end) if end.ends_with(SLICE));
        let slice = name.strip_suffix(SLICE).filter(|_| is_slice)?;
        let prefix = format!("{slice}-");
        let may_match = match tokens.first()? {
            Token::Literal(begin) => begin.starts_with(&prefix) || prefix.starts_with(begin.as_str()),
            Token::Capture(_) => !WITHOUT_JOBS.contains(&slice),
            Token::Any => true,
        };
        may_match.then_some(prefix)
    }
}

const SLICE: &str = ".slice";

/// How the names of units end that have cgroups.
const UNITS: [&str; 5] = [SLICE, ".scope", ".service", ".socket", ".mount"];

/// Slices of systemd and of Kubernetes, which contain no job of a user whose name begins like theirs. The ids
/// of pods look like users with numbers.
const WITHOUT_JOBS: [&str; 4] = ["system", "user", "machine", "kubepods"];

/// Name of the unit of a cgroup; none if it is not one of systemd. A cgroup whose name would begin like a
/// file of a controller has an underscore in front (`cg_escape` in `src/basic/cgroup-util.c`).
fn unit_name(name: &str) -> Option<&str> {
    UNITS.iter().any(|end| name.ends_with(end)).then(|| name.strip_prefix('_').unwrap_or(name))
}

/// Replaces the escapes of systemd, `\xNN` for a byte (`unit_name_escape` in `src/basic/unit-name.c`). A text
/// that would not be UTF-8 stays as it is.
fn unescape(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(1..3).filter(|digits| {
            *first == b'\\' && behind.first() == Some(&b'x') && digits.iter().all(u8::is_ascii_hexdigit)
        });
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { behind.get(3..).unwrap_or_default() } else { behind };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Matches literal text exactly; wildcards and captures match as little as possible, and a capture at least
/// one character. Only a user's name matches as much as possible: it may contain the character that precedes
/// the job's number.
fn matches(tokens: &[Token], name: &str, captured: &mut Captured) -> bool {
    let Some((token, rest)) = tokens.split_first() else { return name.is_empty() };
    match token {
        Token::Literal(literal) => {
            name.strip_prefix(literal.as_str()).is_some_and(|name| matches(rest, name, captured))
        }
        Token::Any | Token::Capture(_) => {
            let least = usize::from(*token != Token::Any);
            let greedy = *token == Token::Capture("user");
            let ends = (least..=name.len()).map(|end| if greedy { name.len() + least - end } else { end });
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
        let refuse =
            |why: &str| Err(InvalidPattern(format!("`{text}` is not a valid cgroup pattern: {why}")));
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
                None => {
                    return refuse(
                        "unknown placeholder; expected {job}, {number}, {sluid}, {uid}, {user} or *",
                    );
                }
            }
        }
        let jobs = parts
            .iter()
            .flatten()
            .filter(|token| matches!(token, Token::Capture("job" | "number" | "sluid")))
            .count();
        if jobs != 1 {
            return refuse("expected exactly one of {job}, {number} and {sluid}");
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
        let oar = capture("oar/{user}_{number}", "oar/anna_b_7").unwrap();
        assert_eq!((oar.user.as_deref(), oar.job.as_deref()), (Some("anna_b"), Some("7")));
        assert_eq!(capture("oar/{user}_{number}", "oar/anna_b"), None);
        assert_eq!(capture("{user}_{number}.slice", "ä_1.slice").unwrap().user.as_deref(), Some("ä"));
        let slice = capture(
            "oar.slice/oar-u{uid}.slice/oar-u*-j{job}.slice",
            "oar.slice/oar-u1000.slice/oar-u1000-j5.slice",
        )
        .unwrap();
        assert_eq!(slice.job.as_deref(), Some("5"));
    }

    /// Takes the patterns of docs/how-to/other-schedulers.md.
    #[test]
    fn captures_jobs_of_other_schedulers() {
        for (pattern, path, job) in [
            ("pbs_jobs.service/jobid/{job}", "pbs_jobs.service/jobid/123[4].server", "123[4].server"),
            ("pbs_jobs.service/jobs/{job}", "pbs_jobs.service/jobs/123.server", "123.server"),
            (
                "user.slice/user-*.slice/user@*.service/*.slice/*shell-*-{job}.service",
                "user.slice/user-980.slice/user@980.service/app.slice/imp-shell-0-f2oGS1ZzMs3.service",
                "f2oGS1ZzMs3",
            ),
            ("lsf/*/job.{job}.*.*", "lsf/cluster1/job.123.4567.1700000000", "123"),
        ] {
            assert_eq!(capture(pattern, path).unwrap().job.as_deref(), Some(job), "{pattern}");
        }
    }

    #[test]
    fn sluids_are_distinguished_from_other_names() {
        let pattern = "*.slice/*slurmstepd.scope/{sluid}";
        let of = |name: &str| capture(pattern, &format!("system.slice/n1_slurmstepd.scope/{name}"));
        let found = of("s5K1KKYAYG5D00").unwrap();
        assert_eq!((found.job.as_deref(), found.is_sluid), (Some("s5K1KKYAYG5D00"), true));
        for other in [
            "system",
            "step_extern",
            "s5K1KKYAYG5D0",
            "s5K1KKYAYG5D000",
            "s5K1KKYAYG5DI0",
            "s5k1kkyayg5d00",
            "job_42",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn names_of_units_are_captured_as_before_systemd_escaped_them() {
        for (name, user) in [
            (r"jean\x2dmarc_123.slice", "jean-marc"),
            (r"zo\xc3\xab_123.slice", "zoë"),
            (r"CORP\x5cjdoe_123.slice", r"CORP\jdoe"),
            (r"jdoe\x40corp_example_123.slice", "jdoe@corp_example"),
            ("a-b_123.slice", "a-b"),
            ("_memory.x_123.slice", "memory.x"),
            ("__x_123.slice", "_x"),
            (r"a\xe9_123.slice", r"a\xe9"),
            (r"a\xg_123.slice", r"a\xg"),
        ] {
            let captured = capture("{user}_{number}.slice", name).unwrap();
            assert_eq!((captured.user.as_deref(), captured.job.as_deref()), (Some(user), Some("123")));
        }
        let job = |pattern: &str, name: &str| capture(pattern, name).unwrap().job.unwrap();
        assert_eq!(job("run-{job}.scope", r"run-a\x2db\x20c.scope"), "a-b c");
        // OAR's own directories are no units.
        assert_eq!(capture("oar/{user}_{number}", r"oar/_a\x2d_7").unwrap().user.unwrap(), r"_a\x2d");
    }

    #[test]
    fn slices_of_users_with_hyphens_are_nested() {
        let nested = |pattern: &str, name: &str| pattern.parse::<Pattern>().unwrap().nested_at(0, name);
        assert_eq!(nested("{user}_{number}.slice", "jean.slice").as_deref(), Some("jean-"));
        assert_eq!(nested("{user}_{number}.slice", "jean-luc.slice").as_deref(), Some("jean-luc-"));
        assert_eq!(nested("*.slice/x/{job}", "system.slice").as_deref(), Some("system-"));
        assert_eq!(nested("oar-u{uid}.slice/{job}", "oar.slice").as_deref(), Some("oar-"));
        for (pattern, name) in [
            ("{user}_{number}.slice", "jean"),
            ("{user}_{number}.slice", "kubepods.slice"),
            ("{user}_{number}.scope", "jean.slice"),
            ("oar.slice/{job}", "oar.slice"),
            ("oar-u{uid}.slice/{job}", "system.slice"),
            ("oar/{user}_{number}", "oar.slice"),
        ] {
            assert_eq!(nested(pattern, name), None, "{pattern} {name}");
        }
    }

    #[test]
    fn other_paths_are_no_jobs() {
        assert_eq!(capture("slurm/uid_{uid}/job_{job}", "slurm/uid_x/job_1"), None);
        assert_eq!(capture("slurm/uid_{uid}/job_{job}", "slurm/uid_1/job_"), None);
        assert_eq!(capture("slurm/uid_{uid}/job_{job}", "slurm_n/uid_1/job_1"), None);
    }

    #[test]
    fn invalid_patterns_are_refused_with_the_reason() {
        for (pattern, word) in [
            ("", "empty"),
            ("a/b", "exactly one of {job}"),
            ("{job}/{job}", "exactly one of"),
            ("{jobs}", "unknown placeholder"),
            ("a/../{job}", "`..`"),
            ("a{job", "unknown placeholder"),
            ("a}{job}", "unknown placeholder"),
        ] {
            let error = pattern.parse::<Pattern>().unwrap_err().to_string();
            assert!(error.contains(word), "{pattern}: {error}");
        }
    }
}
