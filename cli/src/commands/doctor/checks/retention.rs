//! Time for which samples are kept.

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::{COLLECTOR_UNIT, Machine};
use crate::commands::doctor::role::Role;

pub(super) fn check(machine: &Machine, _: Role, findings: &mut Findings) {
    let Some(config) = machine.collector.valid() else { return };
    let state = match machine.store() {
        Ok(state) => state,
        Err(reason) => return findings.not_checked(reason),
    };
    if let Some(jump) = state.clock_jump {
        findings.problem(
            format!("no rows are removed: {jump}"),
            "correct the clock; if it is right: polymeter store confirm-clock",
        );
    }
    let states = &state.retention;
    let kept: Vec<String> =
        states.iter().map(|state| format!("{} for {}", state.level.relation(), state.keep)).collect();
    let kept = kept.join(", ").replace("for forever", "forever");
    let differs = config
        .retention
        .is_some_and(|wanted| states.iter().any(|state| wanted.of(state.level) != state.keep));
    if differs {
        findings.warning(
            format!("the store keeps {kept}, which differs from [retention] in collector.toml"),
            format!("systemctl reload {COLLECTOR_UNIT}"),
        );
    } else {
        findings.ok(format!("the store keeps {kept}"));
    }
}
