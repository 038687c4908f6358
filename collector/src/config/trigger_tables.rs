//! The tables `[[trigger]]`: rules about stragglers.

use std::convert::Infallible;

use polymeter_proto::trigger::{RuleFields, StragglerRule};
use polymeter_service::document::{Reporter, Section};
use polymeter_service::keys::Value;

/// Every rule keeps the state of every node of every job.
const TRIGGERS: usize = 4;

/// Takes the rules. All faults of all of them are reported.
pub(super) fn triggers(value: Value<'_, '_, '_>) -> Option<Vec<StragglerRule>> {
    let Value { section, reporter, key } = value;
    let tables = section.tables(key.name, reporter)?;
    let mut rules: Vec<StragglerRule> = Vec::new();
    for (number, (mut table, span)) in tables.into_iter().enumerate() {
        let fields = fields(&mut table, reporter);
        table.finish(reporter);
        if rules.iter().any(|known| known.name.as_str() == fields.name) {
            reporter.fault(&span, format_args!("`trigger`: there are two of the name `{}`", fields.name));
        }
        if number == TRIGGERS {
            reporter.fault(&span, format_args!("`trigger`: expected at most {TRIGGERS} triggers"));
        }
        match StragglerRule::parse(&fields) {
            Ok(rule) => rules.push(rule),
            Err(faults) => {
                for fault in faults {
                    reporter.fault(&span, format_args!("`trigger`: {fault}"));
                }
            }
        }
    }
    Some(rules)
}

fn fields(table: &mut Section<'_>, reporter: &mut Reporter<'_>) -> RuleFields {
    let mut text = |key| table.parse(key, reporter, |text| Ok::<_, Infallible>(text.to_owned()));
    let fields = RuleFields {
        name: text("name").unwrap_or_default(),
        when: text("when").unwrap_or_default(),
        keep: text("keep"),
        after: text("after"),
        hold_off: text("hold_off"),
        ..RuleFields::default()
    };
    let notice = table.boolean("notice", reporter).unwrap_or_default();
    let firings = table.integer("firings", reporter, 1..=u64::from(u32::MAX));
    RuleFields { notice, firings: firings.and_then(|firings| u32::try_from(firings).ok()), ..fields }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::check;
    use super::super::file::File;
    use crate::CollectorConfig;

    #[test]
    fn reads_rules_and_reports_all_faults_with_their_lines() {
        let text = "[[trigger]]\nname = 'slow'\nwhen = 'straggler(cpu.usage) < 90%'\nnotice = true\n\
                    keep = '1min'\nfirings = 2\n";
        let (File { config, .. }, faults) = File::parse(Path::new("collector.toml"), text);
        assert_eq!(faults.to_string(), "");
        let [rule] = config.stragglers.as_slice() else { panic!("{:?}", config.stragglers) };
        assert_eq!((rule.name.as_str(), rule.test.percent, rule.firings), ("slow", 90, 2));
        assert_eq!((rule.keep_us, rule.notice), (Some(60_000_000), true));
        assert!(CollectorConfig::default().stragglers.is_empty());
        let faults = check(
            Path::new("collector.toml"),
            "[[trigger]]\nname = 'a'\nwhen = 'oom'\n[[trigger]]\nname = 'a'\nwhen = 'straggler(cpu.usage)'\n\
             stacks = '1s'\n[[trigger]]\nname = 'a'\nwhen = 'straggler(cpu.usage)'\n",
        );
        let faults = faults.to_string();
        for expected in [
            "collector.toml:1: `trigger`: `when`: expected `straggler(METRIC)`, found `oom`",
            "collector.toml:7: ",
            "collector.toml:8: `trigger`: there are two of the name `a`",
        ] {
            assert!(faults.contains(expected), "{expected}\n{faults}");
        }
        let many =
            (0..5).map(|number| format!("[[trigger]]\nname = 'n{number}'\nwhen = 'straggler(cpu.usage)'\n"));
        let faults = check(Path::new("collector.toml"), &many.collect::<String>());
        assert!(faults.to_string().contains("at most 4 triggers"));
    }
}
