//! Ids and tie-breaks from a seed.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A SplitMix64 sequence: small, well spread, and the same on every platform.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ids(u64);

impl Ids {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A resource id as EC2 forms them: the prefix, a dash and seventeen hexadecimal digits, the first a zero.
    pub(crate) fn resource(&mut self, prefix: &str) -> String {
        format!("{prefix}-0{:016x}", self.next())
    }

    pub(crate) fn uuid(&mut self) -> String {
        let (high, low) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | ((low >> 48) & 0x3fff),
            low & 0xffff_ffff_ffff
        )
    }

    /// Upper-case letters and digits, as IAM ids use them.
    pub(crate) fn unique(&mut self, prefix: &str) -> String {
        let mut id = prefix.to_owned();
        for _ in 0..17 {
            let character = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[(self.next() % 32) as usize];
            id.push(character as char);
        }
        id
    }
}

/// A number in `[0, 1)` that depends on the seed and these words alone.
pub(crate) fn fraction(seed: u64, words: &[&str]) -> f64 {
    (hash(seed, words) >> 11) as f64 / (1u64 << 53) as f64
}

/// Seventeen hexadecimal digits that depend on the seed and these words alone.
pub(crate) fn digits(seed: u64, words: &[&str]) -> String {
    let mut text = String::from("0");
    write!(text, "{:016x}", hash(seed, words)).expect("writing to a string cannot fail");
    text
}

fn hash(seed: u64, words: &[&str]) -> u64 {
    let mut state = mix(seed ^ 0xcbf2_9ce4_8422_2325);
    for word in words {
        for byte in word.bytes().chain([0]) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    mix(state)
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
