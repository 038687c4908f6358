//! Substitutions that Grafana makes in the SQL of a dashboard before it runs it: variables with the
//! format `sqlstring`, `$__interval`, and the macros of its PostgreSQL data source
//! (pkg/tsdb/grafana-postgresql-datasource/macros.go).

use std::collections::BTreeMap;

#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) variables: BTreeMap<&'static str, Vec<String>>,
    /// Time range in RFC 3339.
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) interval_ms: u64,
    /// Tells whether the data source says that the server has TimescaleDB.
    pub(crate) timescaledb: bool,
}

impl Context {
    pub(crate) fn expand(&self, sql: &str) -> Result<String, String> {
        let mut text = sql.to_owned();
        while let Some(begin) = text.find("${") {
            let end = begin + text[begin..].find('}').ok_or("unterminated variable")?;
            let (name, format) =
                text[begin + 2..end].split_once(':').ok_or("a variable without a format is not quoted")?;
            if format != "sqlstring" {
                return Err(format!("format {format}"));
            }
            let values = self.variables.get(name).ok_or_else(|| format!("unknown variable {name}"))?;
            let quoted: Vec<String> =
                values.iter().map(|value| format!("'{}'", value.replace('\'', "''"))).collect();
            // The value may itself look like a variable, which Grafana does not replace again.
            let value = quoted.join(",").replace("${", "\u{1}");
            text.replace_range(begin..=end, &value);
        }
        text = text.replace('\u{1}', "${").replace("$__interval_ms", &self.interval_ms.to_string());
        text = text.replace("$__interval", &format!("{}ms", self.interval_ms));
        self.macros(&text)
    }

    /// Replaces `$name(arguments)`. The arguments end at the first `)`, whatever is before it.
    fn macros(&self, sql: &str) -> Result<String, String> {
        let (mut expanded, mut rest) = (String::new(), sql);
        while let Some(dollar) = rest.find('$') {
            let (before, from) = rest.split_at(dollar);
            expanded.push_str(before);
            let name: String = from[1..]
                .chars()
                .take_while(|character| character.is_ascii_alphanumeric() || *character == '_')
                .collect();
            let after = &from[1 + name.len()..];
            let Some(arguments) = after.strip_prefix('(').filter(|_| !name.is_empty()) else {
                expanded.push('$');
                rest = &from[1..];
                continue;
            };
            let end = arguments.find(')').ok_or("unterminated macro")?;
            rest = &arguments[end + 1..];
            let parts: Vec<&str> = arguments[..end].split(',').map(|part| part.trim_matches(' ')).collect();
            // As before Grafana 5.3.
            let is_alias = name == "__timeGroup" && rest.starts_with(',');
            let name = if is_alias { "__timeGroupAlias" } else { &name };
            expanded.push_str(&self.macro_text(name, &parts)?);
        }
        Ok(expanded + rest)
    }

    fn macro_text(&self, name: &str, arguments: &[&str]) -> Result<String, String> {
        let column = arguments[0];
        Ok(match name {
            "__time" => format!("{column} AS \"time\""),
            "__timeEpoch" => format!("extract(epoch from {column}) as \"time\""),
            "__timeFilter" => format!("{column} BETWEEN '{}' AND '{}'", self.from, self.to),
            "__timeFrom" => format!("'{}'", self.from),
            "__timeTo" => format!("'{}'", self.to),
            "__timeGroup" => {
                let [_, interval, fill @ ..] = arguments else { return Err("no interval".to_owned()) };
                let seconds = seconds(interval.trim_matches('\''))?;
                if let [fill] = fill
                    && !["NULL", "previous"].contains(fill)
                {
                    fill.parse::<f64>().map_err(|error| format!("fill value {fill}: {error}"))?;
                }
                if self.timescaledb {
                    format!("time_bucket('{seconds:.3}s',{column})")
                } else {
                    format!("floor(extract(epoch from {column})/{seconds})*{seconds}")
                }
            }
            "__timeGroupAlias" => self.macro_text("__timeGroup", arguments)? + " AS \"time\"",
            _ => return Err(format!("unknown macro {name:?}")),
        })
    }
}

fn seconds(interval: &str) -> Result<f64, String> {
    let (number, factor) = match interval.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (interval.strip_suffix('s').ok_or_else(|| format!("interval {interval}"))?, 1.0),
    };
    number
        .parse::<f64>()
        .map(|number| number * factor)
        .map_err(|error| format!("interval {interval}: {error}"))
}
