//! Requests to the supervisor of a running agent, from within the process or over the control socket, and
//! their results.

mod access;
mod annotation;
mod job;
mod lease;
mod supervisor_request;
mod trigger;
mod view;

pub use access::AccessError;
pub use annotation::{AnnotateError, MarkSpec, PushSpec, RegionSpec, RegionsSpec};
pub use job::{JobSpec, RefusedRequest, RegisterError, SamplingRequest, StartSpec, SubmittedRelease};
pub(crate) use lease::OF_DEVICES;
pub use lease::{Cost, DemandSpec, LeaseError, LeaseGrant, LeaseRequest, ReleaseRequest};
pub(crate) use supervisor_request::ask;
pub use supervisor_request::{
    AnnouncementReply, DemandReply, LeaseReply, MetricsReply, RegistrationReply, ReleaseReply, Reply,
    ResetReply, SupervisorRequest,
};
pub use trigger::{KeepSpec, KeptPart, TriggerError, TriggerSpec, TriggersView};
pub use view::{Availability, JobView, MetricView, SourceView, View};
