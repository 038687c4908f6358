//! Verbs, one file each. A new verb is a file here, its module below, and its line in [`for_each_verb!`].

pub(super) mod demand;
pub(super) mod end;
pub(super) mod flush;
pub(super) mod jobs;
pub(super) mod keep;
pub(super) mod keep_last;
pub(super) mod mark;
pub(super) mod metrics;
pub(super) mod plan;
pub(super) mod pmu_release;
pub(super) mod pmu_resume;
pub(super) mod push;
pub(super) mod regions;
pub(super) mod register;
pub(super) mod reset;
pub(super) mod set;
pub(super) mod start;
pub(super) mod status;
pub(super) mod time;
pub(super) mod trigger_add;
pub(super) mod trigger_remove;
pub(super) mod triggers;
pub(super) mod unregister;
pub(super) mod watch;

/// Expands `$callback!` with one line per verb: its module, its variant in `Request`, its struct, and its
/// answers.
#[macro_export]
macro_rules! for_each_verb {
    ($callback:ident) => {
        $callback! {
            status: Status(StatusRequest) => Status(StatusReport);
            jobs: Jobs(JobsRequest);
            metrics: Metrics(MetricsRequest) => Metrics(MetricsAnswer);
            plan: Plan(PlanRequest) => Plan(PlanAnswer);
            set: Set(SetRequest) => Granted(LeaseAnswer);
            reset: Reset(ResetRequest) => Reset(ResetAnswer);
            pmu_release: PmuRelease(PmuReleaseRequest) => PmuReleased(PmuReleaseAnswer);
            pmu_resume: PmuResume(PmuResumeRequest);
            keep: Keep(KeepRequest) => Keeps(KeepsAnswer);
            keep_last: KeepLast(KeepLastRequest);
            mark: Mark(MarkRequest);
            push: Push(PushRequest);
            regions: Regions(RegionsRequest);
            trigger_add: TriggerAdd(TriggerAddRequest) => TriggerAdded(TriggerAddedAnswer);
            trigger_remove: TriggerRemove(TriggerRemoveRequest);
            triggers: Triggers(TriggersRequest) => Triggers(TriggersAnswer);
            watch: Watch(WatchRequest) => Samples(SamplesLine), Progress(ProgressLine), Lagged(LaggedLine), Ended(EndedLine);
            register: Register(RegisterRequest) => Registered(RegisteredAnswer);
            unregister: Unregister(UnregisterRequest);
            start: Start(StartRequest) => Started(StartedAnswer);
            end: End(EndRequest);
            flush: Flush(FlushRequest);
            time: Time(TimeRequest) => Time(TimeAnswer);
            demand: Demand(DemandRequest);
        }
    };
}
