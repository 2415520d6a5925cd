//! Expiration (core spec §5.16): a claim is deleted at its creation plus `expireAfter`, whatever runs there. The drain
//! that follows is as patient as any other.

use super::created_at;
use controller_api::NodeClaim;
use jiff::{SignedDuration, Timestamp};

/// Whether the claim's time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiration {
    /// It does not expire.
    Never,
    /// It expires at this instant.
    At(Timestamp),
    /// Its time is up.
    Expired,
}

/// Decides by the value on the claim itself; a change of the pool concerns new claims only.
pub fn next(claim: &NodeClaim, now: Timestamp) -> Expiration {
    let (Some(after), Some(created)) = (claim.spec.expire_after.as_duration(), created_at(claim)) else {
        return Expiration::Never;
    };
    // A sum beyond the calendar's end never comes.
    let Some(expires) = SignedDuration::try_from(after).ok().and_then(|after| created.checked_add(after).ok()) else {
        return Expiration::Never;
    };
    match now < expires {
        true => Expiration::At(expires),
        false => Expiration::Expired,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::fixtures::{at, claim};

    #[test]
    fn a_claim_expires_at_creation_plus_expire_after() {
        let mut claim = claim();
        claim.spec.expire_after = "1h".parse().unwrap();
        assert_eq!(next(&claim, at(3599)), Expiration::At(at(3600)));
        assert_eq!(next(&claim, at(3600)), Expiration::Expired);
        claim.spec.expire_after = "Never".parse().unwrap();
        assert_eq!(next(&claim, at(i64::from(u32::MAX))), Expiration::Never);
    }
}
