//! Tests of plans.

use super::*;

fn layer(rules: &[(&str, &str)]) -> Layer {
    let rules = rules.iter().map(|(selector, period)| Rule {
        selector: selector.parse().unwrap(),
        sampling: period.parse().ok(),
    });
    Layer::new(rules.collect())
}

fn lease(level: Option<StepLevel>, selector: &str, period: &str) -> Lease {
    Lease {
        level,
        is_ring: false,
        selector: selector.parse().unwrap(),
        sampling: period.parse().unwrap(),
        principal: Principal { uid: 7, administrator: false },
        until_us: 1,
        ends_ns: 1,
        demanded_by: None,
    }
}

fn names(definitions: &[Definition]) -> Vec<String> {
    definitions.iter().map(Definition::name).collect()
}

fn of_steps(machine: Machine, selector: &str) -> Vec<String> {
    names(&choose_of_steps(machine, &selector.parse().unwrap()))
}

fn period(plan: &Plan, name: &str) -> Option<String> {
    plan.sampling(name).map(|(sampling, _)| sampling.to_string())
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
    assert_eq!(plan.sampling("cpu.usage"), Some(("10ms".parse().unwrap(), Cause::Registration)));
    assert_eq!(plan.sampling("cpu.user"), Some(("1s".parse().unwrap(), Cause::Baseline)));
    assert_eq!(plan.sampling("cpu.system"), Some(("1s".parse().unwrap(), Cause::Baseline)));
    assert_eq!(plan.sampling("memory.anon"), None);
}

#[test]
fn lease_shortens_periods_and_never_lengthens_them() {
    let leases = vec![
        Lease { until_us: 100, ..lease(None, "cpu.*", "10ms") },
        Lease { until_us: 200, ..lease(None, "cpu.user", "10ms") },
        Lease { until_us: 50, ..lease(None, "perf.page_faults", "1ms") },
    ];
    let plan = Plan { baseline: layer(&[("cpu.*", "1s"), ("cpu.system", "1ms")]), leases, ..Plan::default() };
    assert_eq!(plan.sampling("cpu.usage"), Some(("10ms".parse().unwrap(), Cause::Lease)));
    assert_eq!(plan.sampling("cpu.system"), Some(("1ms".parse().unwrap(), Cause::Baseline)));
    assert_eq!(plan.in_force(None, "cpu.user").unwrap().until_us, Some(200));
    assert_eq!(plan.in_force(None, "cpu.system").unwrap().until_us, None);
    let names = names(&plan.definitions(Scope::Job));
    assert!(names.contains(&"perf.page_faults".to_owned()), "a lease may begin what the baseline leaves out");
}

#[test]
fn governor_slows_leases_only() {
    let mut plan = Plan {
        baseline: layer(&[("cpu.*", "30ms")]),
        leases: vec![lease(None, "cpu.usage", "10ms"), lease(None, "perf.page_faults", "10ms")],
        stretch: 1,
        ..Plan::default()
    };
    assert_eq!(period(&plan, "cpu.usage").as_deref(), Some("20ms"));
    assert_eq!(plan.in_force(None, "cpu.usage").unwrap().requested, "10ms".parse().ok());
    plan.stretch = 2;
    assert_eq!(plan.sampling("cpu.usage"), Some(("30ms".parse().unwrap(), Cause::Baseline)));
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
    let of_step = names(&plan.step_definitions(StepLevel::Step));
    assert!(of_step.contains(&"cpu.usage".to_owned()) && !of_step.contains(&"cpu.user".to_owned()));
    assert!(!of_step.iter().any(|name| name.starts_with("perf") || name.starts_with("node")), "{of_step:?}");
    assert_eq!(plan.step_sampling(StepLevel::Step, "cpu.usage"), "10s".parse().ok());
    let named = layer(&[("*", "10s"), ("perf.page_*", "1s"), ("perf.cpu_cycles", "off")]);
    let with_perf = Plan { steps: named, ..Plan::default() };
    let of_step = names(&with_perf.step_definitions(StepLevel::Step));
    let perf: Vec<_> = of_step.iter().filter(|name| name.starts_with("perf")).collect();
    assert_eq!(perf, ["perf.page_faults", "perf.page_faults_major", "perf.page_faults_minor"], "as named");
    assert_eq!(names(&plan.step_definitions(StepLevel::Task)), [""; 0]);
}

#[test]
fn off_switches_off_within_a_layer() {
    let plan = Plan {
        baseline: layer(&[("memory.*", "1s"), ("memory.anon", "off"), ("node.load?", "5s")]),
        ..Plan::default()
    };
    let names = names(&plan.definitions(Scope::Job));
    assert!(names.contains(&"memory.file".to_owned()));
    assert!(!names.contains(&"memory.anon".to_owned()));
    assert_eq!(plan.definitions(Scope::Node).len(), 2);
}

#[test]
fn leases_of_steps_concern_steps_only() {
    let of_step = Some(StepLevel::Step);
    let mut plan = Plan {
        baseline: layer(&[("cpu.*", "1s")]),
        steps: layer(&[("*", "10s"), ("perf.page_faults", "5s")]),
        ..Plan::default()
    };
    plan.leases.push(lease(of_step, "cpu.usage", "10ms"));
    assert_eq!(plan.sampling_at(of_step, "cpu.usage"), Some(("10ms".parse().unwrap(), Cause::Lease)));
    assert_eq!(plan.in_force(of_step, "cpu.usage").unwrap().until_us, Some(1));
    assert_eq!(plan.sampling_at(None, "cpu.usage"), Some(("1s".parse().unwrap(), Cause::Baseline)));
    assert_eq!(plan.step_sampling(StepLevel::Task, "cpu.usage"), None);
    // A glob of everything selects no perf events of steps, neither in a layer nor in a lease.
    assert_eq!(plan.step_sampling(StepLevel::Step, "perf.cpu_cycles"), None);
    plan.leases.push(lease(of_step, "*", "1s"));
    assert_eq!(plan.step_sampling(StepLevel::Step, "perf.cpu_cycles"), None);
    assert_eq!(plan.step_sampling(StepLevel::Step, "perf.page_faults"), "5s".parse().ok());
    plan.leases.push(lease(of_step, "perf.*", "2s"));
    assert_eq!(plan.step_sampling(StepLevel::Step, "perf.page_faults"), "2s".parse().ok());
    let sampled = names(&plan.step_definitions(StepLevel::Step));
    assert!(sampled.contains(&"perf.cpu_cycles".to_owned()));
    assert!(!sampled.iter().any(|name| name.starts_with("node.")));
    assert_eq!(names(&plan.step_definitions(StepLevel::Task)), [""; 0]);
    // The governor slows them like others.
    plan.stretch = 2;
    assert_eq!(plan.in_force(of_step, "cpu.usage").unwrap().requested, "10ms".parse().ok());
    assert_eq!(plan.step_sampling(StepLevel::Step, "cpu.usage"), "40ms".parse().ok());
    // Without a baseline of steps, a lease makes them sampled.
    let mut plan = Plan::default();
    assert!(!plan.wants_steps());
    plan.leases.push(lease(None, "cpu.usage", "1s"));
    assert!(!plan.wants_steps());
    plan.leases.push(lease(Some(StepLevel::Task), "memory.current", "1s"));
    assert!(plan.wants_steps());
    assert_eq!(names(&plan.step_definitions(StepLevel::Task)), ["memory.current"]);
}

#[test]
fn metrics_of_steps_come_from_files_or_are_named_perf_events() {
    let all = of_steps(Machine::Any, "*");
    assert!(all.contains(&"cpu.usage".to_owned()));
    assert!(!all.iter().any(|name| name.starts_with("perf.") || name.starts_with("gpu.")));
    assert_eq!(of_steps(Machine::Any, "perf.page_faults"), ["perf.page_faults"]);
    assert_eq!(of_steps(Machine::Any, "node.load1"), [""; 0]);
}

fn plan_on(machine: Machine, selector: &str) -> Plan {
    let baseline = layer(&[("cpu.*", "1s"), ("perf.instructions", "10s")]);
    Plan { machine, baseline, leases: vec![lease(None, selector, "100ms")], ..Plan::default() }
}

fn perf(plan: &Plan) -> Vec<String> {
    names(&plan.definitions(Scope::Job)).into_iter().filter(|name| name.starts_with("perf.")).collect()
}

#[test]
fn a_derived_metric_samples_its_inputs_on_this_machine() {
    let amd = plan_on(Machine::Amd, "perf.flops");
    assert_eq!(perf(&amd), ["perf.event.fp_ret_sse_avx_ops.all", "perf.instructions"]);
    let in_force = amd.in_force(None, "perf.event.fp_ret_sse_avx_ops.all").unwrap();
    assert_eq!((in_force.input_of, in_force.sampling.to_string().as_str()), (vec!["perf.flops"], "100ms"));
    // The times of the groups, by which counts are scaled.
    assert!(amd.sampling("perf.time_running").is_some() && amd.sampling("node.pmu_time.running").is_none());
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
    assert_eq!(
        names(&node.definitions(Scope::Node)),
        ["node.pmu.amd_umc.umc_cas_cmd.rd", "node.pmu.amd_umc.umc_cas_cmd.wr"]
    );
}

#[test]
fn derived_metrics_of_steps_are_named() {
    assert_eq!(of_steps(Machine::Amd, "perf.flops"), ["perf.event.fp_ret_sse_avx_ops.all"]);
    assert_eq!(of_steps(Machine::Amd, "node.dram.bandwidth"), [""; 0]);
}

#[test]
fn leases_of_the_ring_sample_into_the_ring_alone() {
    let of_ring = |selector, period| Lease { is_ring: true, ..lease(None, selector, period) };
    let mut plan = Plan { baseline: layer(&[("cpu.usage", "1s")]), ..Plan::default() };
    assert!(!plan.has_ring());
    plan.leases = vec![of_ring("cpu.*", "10ms"), of_ring("cpu.usage", "20ms")];
    assert!(plan.has_ring());
    assert_eq!(plan.sampling("cpu.usage"), Some((Sampling::raw(Period::SECOND), Cause::Baseline)));
    assert_eq!(plan.sampling("cpu.user"), None);
    assert!(names(&plan.definitions(Scope::Job)).contains(&"cpu.user".to_owned()));
    let in_force = plan.ring_in_force("cpu.usage").unwrap();
    assert_eq!((in_force.sampling, in_force.cause), (Sampling::raw(Period::TEN_MILLISECONDS), Cause::Lease));
    assert!(in_force.by.is_some() && in_force.requested.is_none());
    assert_eq!(plan.ring_in_force("memory.current"), None);
    // The ring of the configuration remains, and the governor slows the leases alone.
    plan.ring = layer(&[("cpu.usage", "15ms"), ("memory.current", "15ms")]);
    plan.stretch = 1;
    let in_force = plan.ring_in_force("cpu.usage").unwrap();
    assert_eq!((in_force.sampling.to_string().as_str(), in_force.cause), ("15ms", Cause::Baseline));
    let in_force = plan.ring_in_force("cpu.user").unwrap();
    assert_eq!(in_force.sampling.to_string(), "20ms");
    assert!(in_force.reason().unwrap().contains("the governor"));
    plan.leases = vec![of_ring("stacks.cpu", "10ms")];
    assert_eq!(plan.ring_sampling("stacks.cpu"), None, "call stacks have no place in the ring");
}
