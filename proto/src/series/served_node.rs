//! Nodes that devices outside the nodes serve, and jobs that their series are about.

use super::{Identifier, Labels};

/// Beginning of the names of all metrics of devices outside the nodes.
pub const DEVICE_METRICS: &str = "device.";

/// Label of the node that a device, its outlet or its port serves.
const NODE: &str = "node";

/// Stands for all nodes, where a device states a value of the site: users read it in the time of their jobs.
pub const ALL_NODES: &str = "*";

/// Returns the node that a series of the node `sampler` is about if that is another one: of a series of a
/// device, the node that the device, its outlet or its port serves.
pub fn served_node<'a>(sampler: &Identifier, metric: &str, labels: &'a Labels) -> Option<&'a str> {
    let served = metric.starts_with(DEVICE_METRICS).then(|| labels.get(NODE))??;
    (served != sampler.as_str()).then_some(served)
}

/// Label of the job that a series of a device is about.
pub const JOB_LABEL: &str = "job_id";

/// Label of the cluster of this job.
pub const JOB_CLUSTER_LABEL: &str = "job_cluster";

/// Job that the labels of a series of a device name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobName {
    pub job_id: Identifier,
    /// None for any cluster.
    pub cluster: Option<Identifier>,
    /// Node on which the job runs; none for any.
    pub node: Option<Identifier>,
}

/// Returns the job that a series of a device is about; none for other series.
pub fn job_name(metric: &str, labels: &Labels) -> Option<JobName> {
    let job_id = metric.starts_with(DEVICE_METRICS).then(|| labels.get(JOB_LABEL))??;
    let name = |label: &str| labels.get(label).and_then(|text| Identifier::try_from(text).ok());
    Some(JobName {
        job_id: Identifier::try_from(job_id).ok()?,
        cluster: name(JOB_CLUSTER_LABEL),
        node: name(NODE).filter(|node| node.as_str() != ALL_NODES),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_devices_name_jobs() {
        let labels = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            Labels::new(pairs.collect()).unwrap()
        };
        let all = labels(&[("job_cluster", "lab"), ("job_id", "7"), ("node", "n1")]);
        let name = job_name("device.gpus.power", &all).unwrap();
        let identifier = |text: &str| Identifier::try_from(text).ok();
        assert_eq!(name.job_id.as_str(), "7");
        assert_eq!((name.cluster, name.node), (identifier("lab"), identifier("n1")));
        assert_eq!(job_name("gpu.power", &all), None);
        assert_eq!(job_name("device.gpus.power", &labels(&[("node", "n1")])), None);
    }

    #[test]
    fn only_devices_serve_other_nodes() {
        let sampler = Identifier::try_from("devices1").unwrap();
        let labels = |node: &str| Labels::new(vec![("node".to_owned(), node.to_owned())]).unwrap();
        let served = |metric: &str, labels: &Labels| served_node(&sampler, metric, labels).map(str::to_owned);
        assert_eq!(served("device.pdu3.outlet.power", &labels("node17")).as_deref(), Some("node17"));
        for (metric, labels) in [
            ("device.pdu3.outlet.power", labels("devices1")),
            ("device.pdu3.total.power", Labels::default()),
            ("devices", labels("node17")),
            ("node.network.receive.bytes", labels("node17")),
        ] {
            assert_eq!(served(metric, &labels), None, "{metric}");
        }
    }
}
