//! Peak of floating-point operations: independent chains of multiplications and additions, in registers.

use std::hint::black_box;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    Double,
    Single,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Instructions {
    /// Fused multiply-add of 512 bits.
    #[serde(rename = "AVX-512")]
    Avx512,
    /// Fused multiply-add of 256 bits.
    #[serde(rename = "AVX2 and FMA")]
    Avx2,
    /// What the compiler makes of a portable loop.
    #[serde(rename = "portable")]
    Portable,
}

impl Instructions {
    /// Those that this processor has.
    pub(super) fn available() -> Vec<Self> {
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                all.push(Self::Avx2);
            }
            if std::arch::is_x86_feature_detected!("avx512f") {
                all.push(Self::Avx512);
            }
        }
        all
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "AVX-512",
            Self::Avx2 => "AVX2 and FMA",
            Self::Portable => "portable loop",
        }
    }

    /// Executes the loop `rounds` times. Returns the number of floating-point operations. They must be among
    /// those that are available.
    pub(super) fn execute(self, precision: Precision, rounds: u32) -> f64 {
        /// A multiplication and an addition.
        const OPERATIONS: f64 = 2.0;
        let numbers = match (self, precision) {
            #[cfg(target_arch = "x86_64")]
            (Self::Avx512 | Self::Avx2, _) => vectors::execute(self, precision, rounds),
            (_, Precision::Double) => doubles(rounds),
            (_, Precision::Single) => singles(rounds),
        };
        numbers * f64::from(rounds) * OPERATIONS
    }
}

/// Chains of the portable loop, as numbers of double precision: as many as the registers hold.
const CHAINS: usize = if cfg!(target_arch = "aarch64") { 32 } else { 20 };

const CHAINS_F64: f64 = if cfg!(target_arch = "aarch64") { 32.0 } else { 20.0 };

/// Defines a portable loop, which returns the number of chains. Where the compiler may assume that the
/// processor has fused multiply-add, it is used; elsewhere it would be a call of a function.
macro_rules! portable {
    ($name:ident, $number:ty, $chains:expr, $count:expr) => {
        fn $name(rounds: u32) -> f64 {
            // The values stay near 2.
            let (factor, summand): ($number, $number) = (black_box(0.5), black_box(1.0));
            let mut chains = [summand; $chains];
            for _ in 0..rounds {
                for value in &mut chains {
                    *value = if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
                        value.mul_add(factor, summand)
                    } else {
                        *value * factor + summand
                    };
                }
            }
            black_box(chains);
            $count
        }
    };
}

portable!(doubles, f64, CHAINS, CHAINS_F64);
portable!(singles, f32, 2 * CHAINS, 2.0 * CHAINS_F64);

#[cfg(target_arch = "x86_64")]
mod vectors {
    //! Loops of vector instructions, written out: the compiler may assume SSE2 only.

    use std::arch::asm;

    use super::{Instructions, Precision};

    /// Chains of a loop: more than the latency of an instruction times those that begin in a cycle.
    const CHAINS: f64 = 12.0;

    pub(super) fn execute(instructions: Instructions, precision: Precision, rounds: u32) -> f64 {
        let lanes = match (instructions, precision) {
            (Instructions::Avx512, Precision::Double) => {
                double512(rounds);
                8.0
            }
            (Instructions::Avx512, Precision::Single) => {
                single512(rounds);
                16.0
            }
            (_, Precision::Double) => {
                double256(rounds);
                4.0
            }
            (_, Precision::Single) => {
                single256(rounds);
                8.0
            }
        };
        CHAINS * lanes
    }

    /// Defines a loop of 12 chains in the registers 0 to 11; the factor is in 12, the summand in 13.
    macro_rules! chains {
        ($name:ident, $instruction:literal, $register:literal, $numbers:expr) => {
            #[expect(unsafe_code, reason = "the compiler has no safe way to these instructions yet")]
            fn $name(rounds: u32) {
                if rounds == 0 {
                    return;
                }
                let [factor, summand] = $numbers;
                // SAFETY: the processor has these instructions, as `available` found. They touch no memory
                // and no stack, and all changed registers are declared.
                unsafe {
                    asm!(
                        "vmovq xmm12, {factor}",
                        "vmovq xmm13, {summand}",
                        concat!("vbroadcastsd ", $register, "12, xmm12"),
                        concat!("vbroadcastsd ", $register, "13, xmm13"),
                        concat!("vmovapd ", $register, "0, ", $register, "13"),
                        concat!("vmovapd ", $register, "1, ", $register, "13"),
                        concat!("vmovapd ", $register, "2, ", $register, "13"),
                        concat!("vmovapd ", $register, "3, ", $register, "13"),
                        concat!("vmovapd ", $register, "4, ", $register, "13"),
                        concat!("vmovapd ", $register, "5, ", $register, "13"),
                        concat!("vmovapd ", $register, "6, ", $register, "13"),
                        concat!("vmovapd ", $register, "7, ", $register, "13"),
                        concat!("vmovapd ", $register, "8, ", $register, "13"),
                        concat!("vmovapd ", $register, "9, ", $register, "13"),
                        concat!("vmovapd ", $register, "10, ", $register, "13"),
                        concat!("vmovapd ", $register, "11, ", $register, "13"),
                        "2:",
                        concat!($instruction, " ", $register, "0, ", $register, "12, ", $register, "13"),
                        concat!($instruction, " ", $register, "1, ", $register, "12, ", $register, "13"),
                        concat!($instruction, " ", $register, "2, ", $register, "12, ", $register, "13"),
                        concat!($instruction, " ", $register, "3, ", $register, "12, ", $register, "13"),
                        concat!($instruction, " ", $register, "4, ", $register, "12, ", $register, "13"),
                        concat!($instruction, " ", $register, "5, ", $register, "12, ", $register, "13"),
                        concat!($instruction, " ", $register, "6, ", $register, "12, ", $register, "13"),
                        concat!($instruction, " ", $register, "7, ", $register, "12, ", $register, "13"),
                        concat!($instruction, " ", $register, "8, ", $register, "12, ", $register, "13"),
                        concat!($instruction, " ", $register, "9, ", $register, "12, ", $register, "13"),
                        concat!($instruction, " ", $register, "10, ", $register, "12, ", $register, "13"),
                        concat!($instruction, " ", $register, "11, ", $register, "12, ", $register, "13"),
                        "dec {rounds:e}",
                        "jnz 2b",
                        "vzeroupper",
                        factor = in(reg) factor,
                        summand = in(reg) summand,
                        rounds = inout(reg) rounds => _,
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
                        out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
                        out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _,
                        // `vzeroupper` changes them, too.
                        out("xmm14") _, out("xmm15") _,
                        options(nomem, nostack),
                    );
                }
            }
        };
    }

    /// Factor and summand as bits: the values stay near 2.
    const DOUBLE: [u64; 2] = [0.5_f64.to_bits(), 1.0_f64.to_bits()];
    const SINGLE: [u64; 2] = [pair(0.5), pair(1.0)];

    const fn pair(value: f32) -> u64 {
        let bits = value.to_bits() as u64;
        bits << 32 | bits
    }

    chains!(double512, "vfmadd213pd", "zmm", DOUBLE);
    chains!(single512, "vfmadd213ps", "zmm", SINGLE);
    chains!(double256, "vfmadd213pd", "ymm", DOUBLE);
    chains!(single256, "vfmadd213ps", "ymm", SINGLE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_available_loops_count_their_operations() {
        for instructions in Instructions::available() {
            for (precision, lanes) in [(Precision::Double, 1.0), (Precision::Single, 2.0)] {
                let chains = match instructions {
                    Instructions::Avx512 => 12.0 * 8.0,
                    Instructions::Avx2 => 12.0 * 4.0,
                    Instructions::Portable => CHAINS_F64,
                };
                let operations = instructions.execute(precision, 1000);
                assert_eq!(operations, chains * lanes * 2000.0, "{}", instructions.name());
                assert_eq!(instructions.execute(precision, 0), 0.0);
            }
        }
    }
}
