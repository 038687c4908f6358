//! The permission of users to control jobs.

use polymeter_proto::control::Refusal;
use polymeter_proto::series::Identifier;

use crate::agents::JobNode;

/// The numeric id of root, on this machine or by its credential.
pub(super) const ROOT: u32 = 0;

/// Returns true if the user may send requests about the job to this node: root, and the owner that this node
/// reports.
pub(super) fn may(uid: u32, node: &JobNode) -> bool {
    uid == ROOT || node.owner_uid == Some(uid)
}

/// Returns the nodes of a job to which a user may send requests. Another user's job is refused like an
/// unknown one, with the same code, text and fields: otherwise the answer would reveal which ids are in use.
pub(super) fn permitted(uid: u32, job: &Identifier, nodes: Vec<JobNode>) -> Result<Vec<JobNode>, Refusal> {
    let permitted: Vec<JobNode> = nodes.into_iter().filter(|node| may(uid, node)).collect();
    if !permitted.is_empty() {
        return Ok(permitted);
    }
    let message = if uid == ROOT {
        format!("unknown job {job}: no agent connected to this collector tracks it")
    } else {
        format!("unknown job {job}, or not yours")
    };
    Err(Refusal::new("unknown_job", Some("job"), &message))
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::SessionId;

    use super::*;
    use crate::messages::Peer;

    fn job_node(node: &str, owner_uid: Option<u32>) -> JobNode {
        let peer = Peer::from(node.as_bytes());
        JobNode { node: node.try_into().unwrap(), session: SessionId(1), peer, owner_uid }
    }

    #[test]
    fn each_node_reports_the_owner_of_its_job() {
        let job = Identifier::try_from("7").unwrap();
        let all = || vec![job_node("n1", Some(1000)), job_node("n2", Some(1001)), job_node("n3", None)];
        let nodes = |uid| {
            let permitted = permitted(uid, &job, all()).map_err(|refusal| refusal.code);
            permitted.map(|nodes| nodes.into_iter().map(|node| node.node.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(nodes(1000), Ok(vec!["n1".to_owned()]));
        assert_eq!(nodes(ROOT), Ok(["n1", "n2", "n3"].map(str::to_owned).to_vec()));
        assert_eq!(nodes(1002), Err("unknown_job".to_owned()));
        assert_eq!(permitted(1002, &job, all()), permitted(1002, &job, Vec::new()), "ids are not revealed");
        assert_ne!(permitted(ROOT, &job, Vec::new()), permitted(1002, &job, Vec::new()));
    }
}
