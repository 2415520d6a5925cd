//! Names and uids from a seed: the same requests in the same order give the same ones.

/// A stream of ids (SplitMix64; statistical quality is all it needs).
#[derive(Debug)]
pub(crate) struct Ids {
    uids: u64,
    names: u64,
}

impl Ids {
    pub(crate) fn new(seed: u64) -> Self {
        // Two streams, so that a generated name does not shift the uids that follow.
        Self { uids: seed, names: seed ^ 0x5851_f42d_4c95_7f2d }
    }

    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uid in the form of a random (version 4) UUID.
    pub(crate) fn uid(&mut self) -> String {
        let (high, low) = (Self::next(&mut self.uids), Self::next(&mut self.uids));
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | ((low >> 48) & 0x3fff),
            low & 0xffff_ffff_ffff
        )
    }

    /// The five characters that `generateName` appends.
    pub(crate) fn suffix(&mut self) -> String {
        // Without vowels and look-alikes, as the server's own alphabet.
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut bits = Self::next(&mut self.names);
        (0..5)
            .map(|_| {
                let letter = ALPHABET[(bits % ALPHABET.len() as u64) as usize];
                bits /= ALPHABET.len() as u64;
                char::from(letter)
            })
            .collect()
    }
}
