//! Programs that count packets.

use super::super::direction::Direction;
use super::super::instruction::{
    Helper, Instruction, Register, add, atomic_add_u64, call, copy, exit, load_map, load_u32, set,
    skip_if_zero, skip_unless_zero, store_u32,
};

/// Offset of `len` in `struct __sk_buff`: the length from the IP header on.
const LENGTH: i16 = 0;

/// Offset of `gso_segs` in `struct __sk_buff`: how many packets the adapter makes of one, or the kernel has
/// merged into one; 0 for any other. Since Linux 5.1.
const SEGMENTS: i16 = 164;

/// Size of the counters of one CPU: a line of the cache.
pub(super) const LINE_BYTES: usize = 64;

/// Adds each packet of a cgroup to the counters of the CPU on which the program runs, and lets it pass. The
/// additions are atomic, since a packet can be sent in an interrupt while another is counted.
pub(super) fn count_packets(direction: Direction, map: i32) -> Vec<Instruction> {
    use Register::{R0, R1, R2, R6, R10};
    let (bytes, packets) = match direction {
        Direction::Receive => (0, 8),
        Direction::Transmit => (16, 24),
    };
    const { assert!(LINE_BYTES >= 32) };
    let [load_map_begin, load_map_end] = load_map(R1, map);
    vec![
        copy(R6, R1),
        // The key is the number of the CPU, at the end of the stack.
        call(Helper::ProcessorId),
        store_u32(R10, -4, R0),
        load_map_begin,
        load_map_end,
        copy(R2, R10),
        add(R2, -4),
        call(Helper::MapLookup),
        skip_if_zero(R0, 6),
        load_u32(R1, R6, LENGTH),
        atomic_add_u64(R0, bytes, R1),
        load_u32(R1, R6, SEGMENTS),
        skip_unless_zero(R1, 1),
        set(R1, 1),
        atomic_add_u64(R0, packets, R1),
        // 1 lets the packet pass.
        set(R0, 1),
        exit(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_lets_the_packet_pass() {
        for direction in [Direction::Receive, Direction::Transmit] {
            let program = count_packets(direction, 3);
            assert!(program.ends_with(&[set(Register::R0, 1), exit()]));
            // The only jumps lead to the last addition and to the end.
            let jumps: Vec<(usize, Instruction)> = (0..)
                .zip(program.iter().copied())
                .filter(|(_, instruction)| matches!(instruction[0], 0x15 | 0x55))
                .collect();
            let targets: Vec<usize> =
                jumps.iter().map(|(place, jump)| place + 1 + usize::from(jump[2])).collect();
            assert_eq!(targets, [program.len() - 2, program.len() - 3]);
        }
    }
}
