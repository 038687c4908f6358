//! The directions of packets.

/// The direction of packets. The number is the `attach_type` of the kernel, `BPF_CGROUP_INET_INGRESS` and
/// `_EGRESS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Receive = 0,
    Transmit = 1,
}
