//! The tables `[[trigger]]`.

use std::convert::Infallible;

use polymeter_proto::trigger::{Rule, RuleFields};
use polymeter_service::document::{Reporter, Section};
use polymeter_service::keys::Value;

/// Every rule is evaluated for every job.
const TRIGGERS: usize = 16;

/// Takes the site's triggers. All faults of all of them are reported.
pub(super) fn triggers(value: Value<'_, '_, '_>) -> Option<Vec<RuleFields>> {
    let Value { section, reporter, key } = value;
    let tables = section.tables(key.name, reporter)?;
    let mut triggers: Vec<RuleFields> = Vec::new();
    for (number, (mut table, span)) in tables.into_iter().enumerate() {
        let fields = fields(&mut table, reporter);
        table.finish(reporter);
        for fault in Rule::parse(&fields).err().unwrap_or_default() {
            reporter.fault(&span, format_args!("`trigger`: {fault}"));
        }
        if triggers.iter().any(|known| known.name == fields.name) {
            reporter.fault(&span, format_args!("`trigger`: there are two of the name `{}`", fields.name));
        }
        if number == TRIGGERS {
            reporter.fault(&span, format_args!("`trigger`: expected at most {TRIGGERS} triggers"));
        }
        triggers.push(fields);
    }
    Some(triggers)
}

fn fields(table: &mut Section<'_>, reporter: &mut Reporter<'_>) -> RuleFields {
    let mut text = |key| table.parse(key, reporter, |text| Ok::<_, Infallible>(text.to_owned()));
    let mut fields = RuleFields {
        name: text("name").unwrap_or_default(),
        when: text("when").unwrap_or_default(),
        keep: text("keep"),
        after: text("after"),
        raise_for: text("raise_for"),
        stacks: text("stacks"),
        hold_off: text("hold_off"),
        ..RuleFields::default()
    };
    fields.mark = table.boolean("mark", reporter).unwrap_or_default();
    fields.notice = table.boolean("notice", reporter).unwrap_or_default();
    let firings = table.integer("firings", reporter, 1..=u64::from(u32::MAX));
    fields.firings = firings.and_then(|firings| u32::try_from(firings).ok());
    if let Some(raise) = table.section("raise", reporter) {
        for (selector, period) in raise.into_entries() {
            match period.get_ref().as_str() {
                Some(period) => drop(fields.raise.insert(selector.into_inner(), period.to_owned())),
                None => reporter.fault(
                    &period.span(),
                    format_args!("`{}`: expected a period in quotes, such as \"10ms\"", selector.get_ref()),
                ),
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::AgentConfig;

    fn parse(text: &str) -> Result<AgentConfig, String> {
        AgentConfig::parse(Path::new("agent.toml"), text).map_err(|faults| faults.to_string())
    }

    #[test]
    fn reads_triggers() {
        let config = parse(
            "[[trigger]]\nname = 'oom'\nwhen = 'oom'\nkeep = '1min'\n[[trigger]]\nname = 'stall'\n\
             when = 'rate(cpu.usage) < 1000 for 30s'\nraise = { \"cpu.*\" = '10ms' }\nnotice = true\nfirings = 2\n",
        );
        let rules = config.unwrap().site_triggers();
        let names: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
        assert_eq!(names, ["oom", "stall"]);
        assert_eq!((rules[0].keep_us, rules[1].keep_us), (Some(60_000_000), None));
        assert_eq!((rules[1].notice, rules[1].firings, rules[1].raise.len()), (true, 2, 1));
    }

    #[test]
    fn reports_all_faults_with_their_lines() {
        let faults = parse(
            "[[trigger]]\nname = 'a'\nwhen = 'oomm'\nkeep = 'long'\nkeeps = '1s'\n[[trigger]]\nname = 'a'\n\
             when = 'oom'\nraise = { 'cpu.*' = 5 }\n",
        );
        let faults = faults.unwrap_err();
        for expected in [
            "agent.toml:1: `trigger`: `when`: unknown metric or event `oomm`; did you mean `oom`?",
            "agent.toml:1: `trigger`: `keep`: invalid period `long`",
            "agent.toml:5: ",
            "agent.toml:6: `trigger`: there are two of the name `a`",
            "agent.toml:9: `cpu.*`: expected a period",
        ] {
            assert!(faults.contains(expected), "{expected}\n{faults}");
        }
        let many = (0..17).map(|number| format!("[[trigger]]\nname = 'n{number}'\nwhen = 'oom'\n"));
        assert!(parse(&many.collect::<String>()).unwrap_err().contains("at most 16 triggers"));
        assert!(parse("trigger = 5\n").unwrap_err().contains("[[trigger]]"));
    }
}
