//! Directions of packets.

/// Direction of packets, as the kernel's `attach_type`: `BPF_CGROUP_INET_INGRESS` and `_EGRESS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Receive = 0,
    Transmit = 1,
}
