//! Configuration files: the packaged example with some settings, unless the file was changed by hand.

use std::fs;
use std::path::{Path, PathBuf};

use super::actions::{Change, Plan, Step};
use crate::failure::Failure;

/// Prefix that `make install` writes into the packaged files.
const LOCAL: &str = "/usr/local/";

/// Key, behind the section's name and a dot if it is in one, and value as TOML.
pub(super) type Setting = (&'static str, String);

/// Adds the step that writes the file at `path` with `settings` into `example`, which packages install. In a
/// file that has other settings than the example and is like it otherwise, as after an earlier setup, keys
/// get values that are not set or the example's own. Any other file is compared instead.
pub(super) fn add(plan: &mut Plan, path: &str, example: &str, settings: &[Setting]) -> Result<(), Failure> {
    let path = PathBuf::from(path);
    let list: Vec<String> = settings.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    let text = format!("write {} with {}", path.display(), list.join(", "));
    let existing = match fs::read_to_string(&path) {
        Ok(existing) => Some(existing),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(Failure::Failed(format!("cannot read {}: {error}", path.display()))),
    };
    let without_prefix = |text: &str| text.replace(LOCAL, "/usr/");
    let (mut base, mut different) = (example.to_owned(), Vec::new());
    if let Some(existing) = existing {
        let is_packaged = without_prefix(&existing) == without_prefix(example);
        different = if is_packaged { Vec::new() } else { compare(&path, &existing, settings)? };
        if !different.is_empty() && has_settings_only(&without_prefix(&existing), &without_prefix(example)) {
            let usual = table(&path, example)?;
            different.retain(|one| one.found.is_some() && one.found.as_ref() != value_of(&usual, one.key));
        }
        base = existing;
    }
    if !different.is_empty() {
        plan.differences.push((path, different.iter().map(Different::line).collect()));
        return Ok(());
    }
    let set: Vec<&Setting> = match path.exists() {
        true => {
            let found = table(&path, &base)?;
            settings.iter().filter(|(key, value)| value_of(&found, key) != parsed(value).as_ref()).collect()
        }
        false => settings.iter().collect(),
    };
    let wanted = set.iter().fold(base.clone(), |text, (key, value)| with(&text, key, value));
    let is_done = path.exists() && wanted == base;
    plan.steps.push(Step { text, is_done, change: Change::File { path, text: wanted } });
    Ok(())
}

fn table(path: &Path, text: &str) -> Result<toml::Table, Failure> {
    text.parse().map_err(|error| {
        Failure::Failed(format!("cannot read {}: {error}; correct it first", path.display()))
    })
}

fn value_of<'a>(table: &'a toml::Table, key: &str) -> Option<&'a toml::Value> {
    match key.split_once('.') {
        Some((section, key)) => table.get(section)?.get(key),
        None => table.get(key),
    }
}

/// Value of a setting.
fn parsed(toml: &str) -> Option<toml::Value> {
    format!("x = {toml}").parse::<toml::Table>().ok()?.remove("x")
}

/// True for the example with other values of some keys, each in its place.
fn has_settings_only(text: &str, example: &str) -> bool {
    let (Ok(found), Ok(usual)) = (text.parse::<toml::Table>(), example.parse::<toml::Table>()) else {
        return false;
    };
    let mut rebuilt = example.to_owned();
    for (name, value) in &found {
        let section = value.as_table().into_iter().flatten();
        let keys = section.map(|(key, value)| (format!("{name}.{key}"), value));
        let own = (!value.is_table()).then(|| (name.clone(), value));
        for (key, value) in keys.chain(own) {
            if value_of(&usual, &key) != Some(value) {
                rebuilt = with(&rebuilt, &key, &json(value));
            }
        }
    }
    rebuilt == text
}

fn uncommented(line: &str) -> &str {
    line.strip_prefix("# ").unwrap_or(line)
}

/// Puts a setting in place of the first line that sets it, also behind a `#`: before the first section, or in
/// the setting's own, whose head may be behind a `#`, too.
fn with(example: &str, key: &str, value: &str) -> String {
    let (section, key) = key.split_once('.').map_or((None, key), |(section, key)| (Some(section), key));
    let mut lines: Vec<String> = example.lines().map(str::to_owned).collect();
    let begin = match section {
        None => 0,
        Some(section) => {
            let head = format!("[{section}]");
            let place = lines.iter().position(|line| uncommented(line) == head).unwrap_or(lines.len());
            lines.splice(place..lines.len().min(place + 1), [head]);
            place + 1
        }
    };
    let is_setting =
        |line: &String| uncommented(line).strip_prefix(key).is_some_and(|rest| rest.starts_with(" = "));
    // The section ends at the next head, also at one behind a `#`, whose keys have other meanings.
    let is_inside =
        |line: &&String| !uncommented(line).starts_with('[') || section.is_none() && !line.starts_with('[');
    let place =
        lines.iter().skip(begin).take_while(is_inside).position(is_setting).map(|place| begin + place);
    let setting = format!("{key} = {value}");
    match place.and_then(|place| lines.get_mut(place)) {
        Some(line) => *line = setting,
        None => lines.insert(begin, setting),
    }
    lines.join("\n") + "\n"
}

/// A setting that a file does not have.
struct Different<'a> {
    key: &'a str,
    wanted: &'a str,
    found: Option<toml::Value>,
}

impl Different<'_> {
    fn line(&self) -> String {
        let found = self
            .found
            .as_ref()
            .map_or_else(|| "is not set".to_owned(), |value| format!("is {}", json(value)));
        format!("`{}` {found}, this command would set {}", self.key, self.wanted)
    }
}

fn compare<'a>(path: &Path, text: &str, settings: &'a [Setting]) -> Result<Vec<Different<'a>>, Failure> {
    let table = table(path, text)?;
    let mut different = Vec::new();
    for (key, wanted) in settings {
        let found = value_of(&table, key);
        if found != parsed(wanted).as_ref() {
            different.push(Different { key, wanted, found: found.cloned() });
        }
    }
    Ok(different)
}

/// A string of TOML.
pub(super) fn quoted(text: &str) -> String {
    json(text)
}

/// JSON, whose strings are also strings of TOML.
fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use polymeter_agent::config::{AgentConfig, EXAMPLE};

    use super::*;

    #[test]
    fn settings_take_the_places_of_their_comments() {
        let text =
            with(&with(EXAMPLE, "collector", "\"tcp://head:7717\""), "spool", "\"/var/lib/polymeter/spool\"");
        assert_eq!(text.lines().count(), EXAMPLE.lines().count());
        let config = AgentConfig::parse(Path::new("agent.toml"), &text).unwrap();
        assert_eq!(config.collectors, ["tcp://head:7717"]);
        assert_eq!(config.spool, Some("/var/lib/polymeter/spool".into()));
        assert!(text.contains("\n# collector_order = "), "a key that begins like another one stays");
        assert!(
            with("[a]\nx = 1\n", "x", "2").starts_with("x = 2\n[a]\n"),
            "a key of a section is another one"
        );
    }

    #[test]
    fn a_setting_of_a_section_switches_it_on() {
        let example = "a = 1\n# [x]\n\n# Words.\n# listen = \"off\"\n# [y]\n# listen = 1\n[z]\nlisten = 2\n";
        let text = with(example, "x.listen", "\"/s\"");
        assert_eq!(text, example.replace("# [x]", "[x]").replace("# listen = \"off\"", "listen = \"/s\""));
        assert_eq!(with(&text, "x.listen", "\"/s\""), text);
        assert_eq!(with("[z]\nlisten = 2\n", "z.other", "3"), "[z]\nother = 3\nlisten = 2\n");
        assert_eq!(with("a = 1\n", "x.listen", "3"), "a = 1\n[x]\nlisten = 3\n");
        let packaged =
            with(include_str!("../../../../deploy/collector.toml"), "api.listen", "\"/run/api.sock\"");
        let faults = polymeter_collector::config::check(Path::new("collector.toml"), &packaged);
        assert!(faults.0.is_empty(), "{faults}");
        let table: toml::Table = packaged.parse().unwrap();
        assert_eq!(table["api"]["listen"].as_str(), Some("/run/api.sock"));
    }

    /// As packages install it, and as `make install` does, which writes its prefix into it.
    #[test]
    fn each_example_is_changed_as_it_is_installed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("installed.toml");
        let collector = include_str!("../../../../deploy/collector.toml");
        let client = include_str!("../../../../deploy/client.toml");
        for example in [EXAMPLE, collector, client] {
            let local = example.replace("/usr/bin/polymeter", "/usr/local/bin/polymeter");
            for installed in
                [example, &local.replace("/usr/libexec/polymeter", "/usr/local/libexec/polymeter")]
            {
                fs::write(&path, installed).unwrap();
                let mut plan = Plan::default();
                add(&mut plan, path.to_str().unwrap(), example, &[("collector", quoted("tcp://x:1"))])
                    .unwrap();
                assert!(plan.differences.is_empty() && plan.has_changes(), "{installed}");
            }
        }
    }

    /// An administrator who repeats the command with one more option.
    #[test]
    fn a_setup_is_completed_by_a_later_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        let example = include_str!("../../../../deploy/collector.toml");
        let run = |settings: &[Setting]| {
            let mut plan = Plan::default();
            add(&mut plan, path.to_str().unwrap(), example, settings).unwrap();
            plan.steps.iter().filter(|step| !step.is_done).for_each(|step| step.execute().unwrap());
            plan
        };
        let first = [("listen", quoted("tcp://127.0.0.1:7717")), ("auth", quoted("munge"))];
        let keys =
            [("listen", quoted("tcp://0.0.0.0:7717")), ("key", quoted("/k")), ("auth", quoted("munge"))];
        let pages = [("listen", quoted("tcp://0.0.0.0:7717")), ("api.listen", quoted("/s"))];
        for settings in [&first[..], &keys, &pages] {
            let plan = run(settings);
            assert!(plan.has_changes() && plan.differences.is_empty(), "{settings:?}: {plan:?}");
            assert!(!run(settings).has_changes());
        }
        let table: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        for (key, value) in keys.iter().chain(&pages) {
            assert_eq!(value_of(&table, key), parsed(value).as_ref(), "{key}");
        }
        // The default of this command does not undo what another one has set.
        let before = fs::read_to_string(&path).unwrap();
        let left = run(&first);
        assert_eq!(
            left.differences[0].1,
            ["`listen` is \"tcp://0.0.0.0:7717\", this command would set \"tcp://127.0.0.1:7717\""]
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
        fs::write(&path, before.replacen("# ", "# My own words. ", 1)).unwrap();
        assert_eq!(run(&[("metrics_listen", quoted("x"))]).differences.len(), 1, "a file of someone else");
    }

    #[test]
    fn a_changed_file_is_compared_and_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.toml");
        let name = path.to_str().unwrap();
        let settings = [("collector", quoted("tcp://head:7717"))];
        let plan = |settings: &[Setting]| {
            let mut plan = Plan::default();
            add(&mut plan, name, EXAMPLE, settings).unwrap();
            plan
        };
        assert!(plan(&settings).has_changes(), "there is no file");
        fs::write(&path, EXAMPLE).unwrap();
        assert!(plan(&settings).has_changes(), "the packaged file");
        assert!(!plan(&[]).has_changes());
        let made = plan(&settings);
        made.steps[0].execute().unwrap();
        assert!(!plan(&settings).has_changes(), "the second run");
        fs::write(&path, "# mine\ncollector = \"tcp://other:1\"\n").unwrap();
        let left = plan(&settings);
        assert!(!left.has_changes());
        assert_eq!(
            left.differences[0].1,
            ["`collector` is \"tcp://other:1\", this command would set \"tcp://head:7717\""]
        );
        let of_section = [("api.listen", quoted("/run/api.sock"))];
        fs::write(&path, "[api]\nlisten = \"off\"\n").unwrap();
        assert_eq!(
            plan(&of_section).differences[0].1,
            ["`api.listen` is \"off\", this command would set \"/run/api.sock\""]
        );
        fs::write(&path, "# mine\ncollector = \"tcp://head:7717\"\n").unwrap();
        assert!(!plan(&settings).has_changes() && plan(&settings).differences.is_empty());
    }
}
