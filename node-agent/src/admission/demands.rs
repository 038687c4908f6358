//! Demands: leases on the metrics of devices that this agent polls, for jobs on the nodes that the devices
//! serve. The collector asks for them, and repeats it as long as they last.

use super::demand_rules::is_of_demand;
use super::leases::{Granting, duration_us, end_leases, ends};
use super::machine::{Admission, ChangedPlan};
use super::pricing::ReadTimes;
use crate::plan::Lease;
use crate::principal::Principal;
use crate::request::LeaseRequest;
use crate::targets::{Now, Targets};
use polymeter_proto::series::Identifier;

impl Admission {
    /// Extends the leases of a demand that is repeated. Returns none if it asks for anything else than
    /// before.
    pub(crate) fn renew(
        &self,
        targets: &mut Targets,
        request: &LeaseRequest,
        read_times: &ReadTimes,
        now: Now,
    ) -> Option<Granting> {
        let (until_us, ends_ns) = ends(duration_us(&self.pricing.limits, request, now).ok()?, now);
        let target = targets.get_mut(&request.job_id)?;
        let leases = target.plan.leases.iter().filter(|lease| is_of_demand(lease, request));
        if !leases
            .map(|lease| (&lease.selector, lease.sampling))
            .eq(request.metrics.iter().map(|(s, p)| (s, *p)))
        {
            return None;
        }
        for lease in target.plan.leases.iter_mut().filter(|lease| is_of_demand(lease, request)) {
            (lease.until_us, lease.ends_ns) = (until_us, ends_ns);
        }
        let cost = self.pricing.cost(target, &target.plan, read_times);
        Some(Granting { request: request.clone(), former: target.plan.leases.clone(), cost, until_us })
    }

    /// Ends what a job demands of devices. Returns the node if that was anything.
    pub(crate) fn end_demand(targets: &mut Targets, by: Principal, job: &Identifier) -> Option<ChangedPlan> {
        let target = targets.get_mut(&None)?;
        let is_ended =
            |lease: &Lease| lease.demanded_by.as_ref() == Some(job) && lease.principal.uid == by.uid;
        end_leases(&None, target, is_ended)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polymeter_proto::period::Sampling;

    use super::*;
    use crate::admission::ExerciseTimes;
    use crate::config::Limits;
    use crate::plan::Plan;
    use crate::request::LeaseError;
    use crate::sources::Target;
    use crate::targets::TrackedTarget;

    const SECOND_NS: u64 = 1_000_000_000;

    fn job(id: &str) -> Identifier {
        id.try_into().unwrap()
    }

    fn user(uid: u32) -> Principal {
        Principal { uid, administrator: false }
    }

    fn demand(id: &str, uid: u32, metrics: &[(&str, &str)]) -> LeaseRequest {
        let metric = |(name, period): &(&str, &str)| (name.parse().unwrap(), period.parse().unwrap());
        LeaseRequest {
            principal: user(uid),
            job_id: None,
            level: None,
            is_ring: false,
            metrics: metrics.iter().map(metric).collect(),
            since_us: None,
            duration_us: Some(90_000_000),
            demanded_by: Some(job(id)),
        }
    }

    struct Node(Targets, Admission);

    impl Node {
        fn new() -> Self {
            let mut targets = Targets::default();
            let node = TrackedTarget::new(None, Target::Node(Arc::default()), Plan::default(), None);
            targets.insert(None, node);
            Self(targets, Admission::new(Limits::default(), 1))
        }

        fn at(seconds: u64) -> Now {
            Now { monotonic_ns: seconds * SECOND_NS, realtime_us: 0 }
        }

        fn ask(&mut self, request: LeaseRequest, seconds: u64) -> Result<(), LeaseError> {
            self.1.check(&self.0, &request, Self::at(seconds))?;
            self.1.admit(&mut self.0, request, &ReadTimes::new(), Self::at(seconds)).map(drop)
        }

        fn renew(&mut self, request: &LeaseRequest, seconds: u64) -> bool {
            self.1.renew(&mut self.0, request, &ReadTimes::new(), Self::at(seconds)).is_some()
        }

        fn plan(&self) -> &Plan {
            &self.0.get(&None).unwrap().plan
        }

        fn period(&self, name: &str) -> Option<String> {
            self.plan().sampling(name).map(|(Sampling { period, .. }, _)| period.to_string())
        }

        fn ends(&self) -> Vec<u64> {
            self.plan().leases.iter().map(|lease| lease.ends_ns / SECOND_NS).collect()
        }
    }

    const POWER: &str = "device.pdu.power";

    #[test]
    fn the_shortest_period_of_all_jobs_is_in_force_until_each_has_ended() {
        let mut node = Node::new();
        node.ask(demand("7", 1, &[(POWER, "1s")]), 0).unwrap();
        node.ask(demand("8", 2, &[(POWER, "20ms"), ("device.sw.bytes", "1s")]), 0).unwrap();
        assert_eq!(node.period(POWER).as_deref(), Some("20ms"));
        assert_eq!(Admission::end_demand(&mut node.0, user(1), &job("8")), None, "of another user");
        assert!(Admission::end_demand(&mut node.0, user(2), &job("8")).is_some());
        assert_eq!((node.period(POWER).as_deref(), node.period("device.sw.bytes")), (Some("1s"), None));
        node.ask(demand("7", 1, &[("device.sw.bytes", "2s")]), 0).unwrap();
        assert_eq!(node.period(POWER), None, "a demand replaces the former one");
        assert!(Admission::end_demand(&mut node.0, user(1), &job("7")).is_some());
        assert!(node.plan().leases.is_empty());
    }

    #[test]
    fn leases_and_requests_for_them_need_the_speed_of_the_machine() {
        let mut node = Node::new();
        let has_prices = |node: &Node| node.1.has_prices(&node.0);
        let times = ExerciseTimes { short_ns: 1_000_000, long_ns: 1_000_000 };
        let ask = |node: &mut Node| node.ask(demand("7", 1, &[(POWER, "1s")]), 0).unwrap();
        let end = |node: &mut Node| Admission::end_demand(&mut node.0, user(1), &job("7")).unwrap();
        assert!(!has_prices(&node));
        ask(&mut node);
        node.1.calibrate(times);
        assert!(has_prices(&node), "a lease is in force");
        end(&mut node);
        assert!(!has_prices(&node));
        ask(&mut node);
        end(&mut node);
        assert!(has_prices(&node), "the speed may have changed since the last calibration");
        node.1.calibrate(times);
        assert!(!has_prices(&node));
    }

    #[test]
    fn a_repeated_demand_is_extended_and_a_changed_one_is_granted_anew() {
        let mut node = Node::new();
        let both = demand("7", 1, &[(POWER, "1s"), ("device.sw.bytes", "1s")]);
        assert!(!node.renew(&both, 0), "the first one");
        node.ask(both.clone(), 0).unwrap();
        node.ask(demand("8", 2, &[(POWER, "1s")]), 0).unwrap();
        assert!(node.renew(&both, 30));
        assert_eq!(node.ends(), [120, 120, 90]);
        assert!(!node.renew(&demand("7", 1, &[(POWER, "1s")]), 60));
        assert!(!node.renew(&demand("7", 1, &[(POWER, "1s"), ("device.sw.bytes", "2s")]), 60));
        assert!(!node.renew(&demand("7", 3, &[(POWER, "1s"), ("device.sw.bytes", "1s")]), 60));
        assert_eq!(node.ends(), [120, 120, 90]);
    }

    #[test]
    fn limits_hold_for_each_user_and_for_all() {
        let mut node = Node::new();
        let many = |id: &str, uid, count: usize| {
            let names: Vec<String> = (0..count).map(|number| format!("device.d{id}.m{number}")).collect();
            let metrics: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1s")).collect();
            demand(id, uid, &metrics)
        };
        assert_eq!(node.ask(many("1", 1, 257), 0), Err(LeaseError::TooManyDemands(256)));
        for uid in 1..=4 {
            node.ask(many(&uid.to_string(), uid, 256), 0).unwrap();
        }
        assert_eq!(node.ask(many("5", 5, 1), 0), Err(LeaseError::TooManyDemands(1_024)));
        let too_short = node.ask(demand("1", 1, &[(POWER, "100us")]), 0).unwrap_err();
        assert!(matches!(too_short, LeaseError::TooShort { .. }), "{too_short}");
        // The changes of one user do not exclude another.
        let mut node = Node::new();
        let flicker = |node: &mut Node, uid, seconds: u64| node.ask(many("7", uid, 200), seconds);
        let granted = (0..30).take_while(|_| flicker(&mut node, 1, 0).is_ok()).count();
        assert_eq!(granted, 13);
        assert!(matches!(flicker(&mut node, 1, 0), Err(LeaseError::TooFast { .. })));
        assert!(flicker(&mut node, 2, 0).is_ok());
        assert!(flicker(&mut node, 1, 100).is_ok());
    }
}
