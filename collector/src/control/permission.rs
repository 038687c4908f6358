//! Permission of users to control jobs.

use polymeter_proto::control::Refusal;
use polymeter_proto::series::Identifier;

use crate::agents::JobNode;

/// Root of this machine or by its credential.
pub(super) const ROOT: u32 = 0;

/// Root and the owner may send requests about the job.
pub(super) fn may_control(uid: u32, owner_uid: Option<u32>) -> bool {
    uid == ROOT || owner_uid == Some(uid)
}

/// Decides by the owner that this node reports.
pub(super) fn may(uid: u32, node: &JobNode) -> bool {
    may_control(uid, node.owner_uid)
}

/// Refusal for a job without nodes to which a user may send requests. Another user's job is refused like an
/// unknown one, with the same code, text and fields: otherwise the answer would reveal which ids are in use.
pub(super) fn unknown_job(uid: u32, job: &Identifier) -> Refusal {
    let message = if uid == ROOT {
        format!("unknown job {job}: no agent connected to a collector tracks it")
    } else {
        format!("unknown job {job}, or not yours")
    };
    Refusal::new("unknown_job", Some("job"), &message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_owner_control_a_job() {
        assert!(may_control(ROOT, None) && may_control(ROOT, Some(1000)) && may_control(1000, Some(1000)));
        assert!(!may_control(1000, None) && !may_control(1000, Some(1001)));
    }

    #[test]
    fn a_refusal_does_not_reveal_ids() {
        let job = Identifier::try_from("7").unwrap();
        assert_eq!(unknown_job(1000, &job), unknown_job(1001, &job));
        assert_ne!(unknown_job(ROOT, &job), unknown_job(1000, &job));
    }
}
