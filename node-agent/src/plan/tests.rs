//! Tests of plans.

use super::*;

fn layer(rules: &[(&str, &str)]) -> Layer {
    let rule = |(selector, period): &(&str, &str)| Rule {
        selector: selector.parse().unwrap(),
        period: period.parse().ok(),
    };
    Layer::new(rules.iter().map(rule).collect())
}

fn period(plan: &Plan, name: &str) -> Option<String> {
    plan.period(name).map(|(period, _)| period.to_string())
}

#[test]
fn most_specific_rule_counts_in_any_order() {
    for rules in [
        [("cpu.usage", "1s"), ("cpu.*", "10ms"), ("*", "5s")],
        [("*", "5s"), ("cpu.*", "10ms"), ("cpu.usage", "1s")],
    ] {
        let plan = Plan { baseline: layer(&rules), ..Plan::default() };
        assert_eq!(period(&plan, "cpu.usage").as_deref(), Some("1s"));
        assert_eq!(period(&plan, "cpu.user").as_deref(), Some("10ms"));
        assert_eq!(period(&plan, "memory.anon").as_deref(), Some("5s"));
    }
}

#[test]
fn shortest_period_of_all_layers_is_in_force() {
    let plan = Plan {
        leases: Vec::new(),
        baseline: layer(&[("cpu.*", "1s")]),
        registration: layer(&[("cpu.usage", "10ms"), ("cpu.user", "1min"), ("cpu.system", "off")]),
        stretch: 3,
        ..Plan::default()
    };
    assert_eq!(plan.period("cpu.usage"), Some(("10ms".parse().unwrap(), Cause::Registration)));
    assert_eq!(plan.period("cpu.user"), Some(("1s".parse().unwrap(), Cause::Baseline)));
    assert_eq!(plan.period("cpu.system"), Some(("1s".parse().unwrap(), Cause::Baseline)));
    assert_eq!(plan.period("memory.anon"), None);
}

#[test]
fn lease_shortens_periods_and_never_lengthens_them() {
    let lease = |selector: &str, text: &str, until_us| Lease {
        level: None,
        selector: selector.parse().unwrap(),
        period: text.parse().unwrap(),
        principal: Principal { uid: 7, administrator: false },
        until_us,
        ends_ns: 0,
    };
    let leases = vec![
        lease("cpu.*", "10ms", 100),
        lease("cpu.user", "10ms", 200),
        lease("perf.page_faults", "1ms", 50),
    ];
    let plan = Plan { baseline: layer(&[("cpu.*", "1s"), ("cpu.system", "1ms")]), leases, ..Plan::default() };
    assert_eq!(plan.period("cpu.usage"), Some(("10ms".parse().unwrap(), Cause::Lease)));
    assert_eq!(plan.period("cpu.system"), Some(("1ms".parse().unwrap(), Cause::Baseline)));
    assert_eq!(plan.in_force(None, "cpu.user").unwrap().until_us, Some(200));
    assert_eq!(plan.in_force(None, "cpu.system").unwrap().until_us, None);
    let names: Vec<_> = plan.definitions(Scope::Job).iter().map(Definition::name).collect();
    assert!(names.contains(&"perf.page_faults".to_owned()), "a lease may begin what the baseline leaves out");
}

#[test]
fn governor_slows_leases_only() {
    let principal = Principal { uid: 7, administrator: false };
    let lease = |selector: &str| Lease {
        level: None,
        selector: selector.parse().unwrap(),
        period: "10ms".parse().unwrap(),
        principal,
        until_us: 1,
        ends_ns: 1,
    };
    let mut plan = Plan {
        baseline: layer(&[("cpu.*", "30ms")]),
        leases: vec![lease("cpu.usage"), lease("perf.page_faults")],
        stretch: 1,
        ..Plan::default()
    };
    assert_eq!(period(&plan, "cpu.usage").as_deref(), Some("20ms"));
    assert_eq!(plan.in_force(None, "cpu.usage").unwrap().requested, "10ms".parse().ok());
    plan.stretch = 2;
    assert_eq!(plan.period("cpu.usage"), Some(("30ms".parse().unwrap(), Cause::Baseline)));
    assert_eq!(period(&plan, "perf.page_faults").as_deref(), Some("40ms"));
    plan.stretch = u8::MAX;
    assert_eq!(period(&plan, "perf.page_faults").as_deref(), Some("41943040ms"));
}

#[test]
fn steps_have_plans_of_their_own() {
    let plan = Plan {
        baseline: layer(&[("cpu.*", "1s")]),
        steps: layer(&[("*", "10s"), ("cpu.user", "off")]),
        ..Plan::default()
    };
    assert!(plan.wants_steps() && !Plan::default().wants_steps());
    let names = |kind| plan.step_definitions(kind).iter().map(Definition::name).collect::<Vec<_>>();
    let of_step = names(StepLevel::Step);
    assert!(of_step.contains(&"cpu.usage".to_owned()) && !of_step.contains(&"cpu.user".to_owned()));
    assert!(!of_step.iter().any(|name| name.starts_with("perf") || name.starts_with("node")), "{of_step:?}");
    assert_eq!(plan.step_period(StepLevel::Step, "cpu.usage"), "10s".parse().ok());
    let named = layer(&[("*", "10s"), ("perf.page_*", "1s"), ("perf.cpu_cycles", "off")]);
    let with_perf = Plan { steps: named, ..Plan::default() };
    let of_step: Vec<String> =
        with_perf.step_definitions(StepLevel::Step).iter().map(Definition::name).collect();
    let perf: Vec<_> = of_step.iter().filter(|name| name.starts_with("perf")).collect();
    assert_eq!(perf, ["perf.page_faults", "perf.page_faults_major", "perf.page_faults_minor"], "as named");
    assert_eq!(names(StepLevel::Task), [""; 0]);
}

#[test]
fn off_switches_off_within_a_layer() {
    let plan = Plan {
        baseline: layer(&[("memory.*", "1s"), ("memory.anon", "off"), ("node.load?", "5s")]),
        ..Plan::default()
    };
    let names: Vec<_> = plan.definitions(Scope::Job).iter().map(Definition::name).collect();
    assert!(names.contains(&"memory.file".to_owned()));
    assert!(!names.contains(&"memory.anon".to_owned()));
    assert_eq!(plan.definitions(Scope::Node).len(), 2);
}

#[test]
fn leases_of_steps_concern_steps_only() {
    let lease = |level, selector: &str, period: &str| Lease {
        level,
        selector: selector.parse().unwrap(),
        period: period.parse().unwrap(),
        principal: Principal { uid: 7, administrator: false },
        until_us: 1,
        ends_ns: 1,
    };
    let of_step = Some(StepLevel::Step);
    let mut plan = Plan {
        baseline: layer(&[("cpu.*", "1s")]),
        steps: layer(&[("*", "10s"), ("perf.page_faults", "5s")]),
        ..Plan::default()
    };
    plan.leases.push(lease(of_step, "cpu.usage", "10ms"));
    assert_eq!(plan.period_at(of_step, "cpu.usage"), Some(("10ms".parse().unwrap(), Cause::Lease)));
    assert_eq!(plan.in_force(of_step, "cpu.usage").unwrap().until_us, Some(1));
    assert_eq!(plan.period_at(None, "cpu.usage"), Some(("1s".parse().unwrap(), Cause::Baseline)));
    assert_eq!(plan.step_period(StepLevel::Task, "cpu.usage"), None);
    // A glob of everything selects no perf events of steps, neither in a layer nor in a lease.
    assert_eq!(plan.step_period(StepLevel::Step, "perf.cpu_cycles"), None);
    plan.leases.push(lease(of_step, "*", "1s"));
    assert_eq!(plan.step_period(StepLevel::Step, "perf.cpu_cycles"), None);
    assert_eq!(plan.step_period(StepLevel::Step, "perf.page_faults"), "5s".parse().ok());
    plan.leases.push(lease(of_step, "perf.*", "2s"));
    assert_eq!(plan.step_period(StepLevel::Step, "perf.page_faults"), "2s".parse().ok());
    let names = |level| plan.step_definitions(level).iter().map(Definition::name).collect::<Vec<_>>();
    assert!(names(StepLevel::Step).contains(&"perf.cpu_cycles".to_owned()));
    assert!(!names(StepLevel::Step).iter().any(|name| name.starts_with("node.")));
    assert_eq!(names(StepLevel::Task), [""; 0]);
    // The governor slows them like others.
    plan.stretch = 2;
    assert_eq!(plan.in_force(of_step, "cpu.usage").unwrap().requested, "10ms".parse().ok());
    assert_eq!(plan.step_period(StepLevel::Step, "cpu.usage"), "40ms".parse().ok());
    // Without a baseline of steps, a lease makes them sampled.
    let mut plan = Plan::default();
    assert!(!plan.wants_steps());
    plan.leases.push(lease(None, "cpu.usage", "1s"));
    assert!(!plan.wants_steps());
    plan.leases.push(lease(Some(StepLevel::Task), "memory.current", "1s"));
    assert!(plan.wants_steps());
    let of_tasks = plan.step_definitions(StepLevel::Task);
    assert_eq!(of_tasks.iter().map(Definition::name).collect::<Vec<_>>(), ["memory.current"]);
}

#[test]
fn metrics_of_steps_come_from_files_or_are_named_perf_events() {
    let names = |selector: &str| -> Vec<String> {
        choose_of_steps(Machine::Any, &selector.parse().unwrap()).iter().map(Definition::name).collect()
    };
    assert!(names("*").contains(&"cpu.usage".to_owned()));
    assert!(!names("*").iter().any(|name| name.starts_with("perf.") || name.starts_with("gpu.")));
    assert_eq!(names("perf.page_faults"), ["perf.page_faults"]);
    assert_eq!(names("node.load1"), [""; 0]);
}

#[test]
fn a_derived_metric_samples_its_inputs_on_this_machine() {
    let plan_on = |machine, selector: &str| Plan {
        machine,
        baseline: layer(&[("cpu.*", "1s"), ("perf.instructions", "10s")]),
        leases: vec![Lease {
            level: None,
            selector: selector.parse().unwrap(),
            period: "100ms".parse().unwrap(),
            principal: Principal { uid: 7, administrator: false },
            until_us: 1,
            ends_ns: 1,
        }],
        ..Plan::default()
    };
    let perf = |plan: &Plan| -> Vec<String> {
        let names = plan.definitions(Scope::Job).into_iter().map(|definition| definition.name());
        names.filter(|name| name.starts_with("perf.")).collect()
    };
    let amd = plan_on(Machine::Amd, "perf.flops");
    assert_eq!(perf(&amd), ["perf.event.fp_ret_sse_avx_ops.all", "perf.instructions"]);
    let in_force = amd.in_force(None, "perf.event.fp_ret_sse_avx_ops.all").unwrap();
    assert_eq!((in_force.input_of, in_force.period.to_string().as_str()), (vec!["perf.flops"], "100ms"));
    // The times of the groups, by which counts are scaled.
    assert!(amd.period("perf.time_running").is_some() && amd.period("node.pmu_time.running").is_none());
    assert_eq!(perf(&plan_on(Machine::Intel, "perf.flops")).len(), 9);
    assert_eq!(perf(&plan_on(Machine::Any, "perf.flops")), ["perf.instructions"]);
    let ipc = plan_on(Machine::Any, "perf.ipc");
    assert_eq!(perf(&ipc), ["perf.cpu_cycles", "perf.instructions"]);
    assert_eq!(period(&ipc, "perf.instructions").as_deref(), Some("100ms"));
    // Who names a metric itself, needs no other reason for it.
    let named = plan_on(Machine::Any, "perf.instructions");
    assert!(named.in_force(None, "perf.instructions").unwrap().input_of.is_empty());
    // A glob of everything opens no counters of formulas.
    assert!(!perf(&plan_on(Machine::Amd, "*")).iter().any(|name| name.starts_with("perf.event")));
    let all = perf(&plan_on(Machine::Amd, "perf.*"));
    assert!(all.contains(&"perf.event.fp_ret_sse_avx_ops.all".to_owned()));
    let node = plan_on(Machine::Amd, "node.dram.bandwidth");
    let of_node: Vec<String> = node.definitions(Scope::Node).iter().map(Definition::name).collect();
    assert_eq!(of_node, ["node.pmu.amd_umc.umc_cas_cmd.rd", "node.pmu.amd_umc.umc_cas_cmd.wr"]);
}

#[test]
fn derived_metrics_of_steps_are_named() {
    let chosen = |selector: &str| -> Vec<String> {
        choose_of_steps(Machine::Amd, &selector.parse().unwrap()).iter().map(Definition::name).collect()
    };
    assert_eq!(chosen("perf.flops"), ["perf.event.fp_ret_sse_avx_ops.all"]);
    assert_eq!(chosen("node.dram.bandwidth"), [""; 0]);
}
