//! Pins the operating system's randomness for one simulation.
//!
//! The order in which std's hash maps iterate, and with it the order of a controller's first reconciles, comes from
//! `getrandom`. This crate answers that call itself: from a seed on a thread that called [`pin`], and from the kernel
//! everywhere else. The symbol overrides libc's at link time, so the crate belongs in `trysquare` and its tests and in
//! no other program; the controller and the fakes never link it. Linux only: elsewhere [`pin`] answers
//! [`Pinned::Unsupported`] and nothing is overridden.

use std::cell::Cell;

thread_local! {
    /// The generator's state on a pinned thread.
    static STATE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Whether pinning took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pinned {
    /// This thread's randomness comes from the seed from now on.
    Yes,
    /// This platform has no `getrandom` to override.
    Unsupported,
}

/// Answers this thread's requests for randomness from `seed` from now on. Call it before anything on the thread makes a
/// hash map: keys drawn earlier stay as they are.
pub fn pin(seed: u64) -> Pinned {
    STATE.set(Some(seed));
    if cfg!(target_os = "linux") { Pinned::Yes } else { Pinned::Unsupported }
}

/// The next eight bytes of a pinned thread's sequence (SplitMix64: full period, no weak seeds), or nothing on others.
fn next_word() -> Option<u64> {
    STATE.with(|state| {
        let next = state.get()?.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(Some(next));
        let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(mixed ^ (mixed >> 31))
    })
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // Overriding a libc symbol is what this crate is for.
mod symbol {
    use super::next_word;

    /// The replacement for libc's `getrandom`.
    ///
    /// # Safety
    /// As for libc's: `buffer` must be valid for writes of `length` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn getrandom(
        buffer: *mut libc::c_void,
        length: libc::size_t,
        flags: libc::c_uint,
    ) -> libc::ssize_t {
        let Some(first) = next_word() else {
            // SAFETY: the arguments are passed on as they came; the kernel checks them.
            return unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) as libc::ssize_t };
        };
        if buffer.is_null() {
            return 0;
        }
        // SAFETY: the caller promises `length` writable bytes at `buffer`, which is not null.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
        let mut word = Some(first);
        for chunk in bytes.chunks_mut(8) {
            let value = word.take().or_else(next_word).unwrap_or_default();
            chunk.copy_from_slice(&value.to_le_bytes()[..chunk.len()]);
        }
        length as libc::ssize_t
    }
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::disallowed_types)] // The order of a hash set is what is being pinned.
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn order_on_a_new_thread(seed: Option<u64>) -> Vec<u32> {
        std::thread::spawn(move || {
            if let Some(seed) = seed {
                assert_eq!(pin(seed), Pinned::Yes);
            }
            (0..64).collect::<HashSet<u32>>().into_iter().collect()
        })
        .join()
        .unwrap()
    }

    #[test]
    fn equal_seeds_give_equal_hash_orders() {
        assert_eq!(order_on_a_new_thread(Some(7)), order_on_a_new_thread(Some(7)));
    }

    #[test]
    fn other_seeds_and_unpinned_threads_differ() {
        let pinned = order_on_a_new_thread(Some(7));
        assert_ne!(pinned, order_on_a_new_thread(Some(8)));
        assert_ne!(pinned, order_on_a_new_thread(None));
        assert_ne!(order_on_a_new_thread(None), order_on_a_new_thread(None));
    }
}
