//! Signed tokens that have been found good, so that each request does not check the signature again.

use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::SystemTime};

use parking_lot::Mutex;

use super::{epochs::Hold, known::Known};

/// So many are remembered. Whoever comes when all places are taken takes that of any other.
const MOST: usize = 4096;

/// A token's digest.
pub(super) type TokenDigest = [u8; 32];

/// What a good token says.
#[derive(Clone, Debug)]
pub(super) struct Verified {
    pub(super) known: Known,
    /// Whom it is for.
    pub(super) audiences: Vec<String>,
    /// It is looked at again after this, if it lasts longer.
    pub(super) again: SystemTime,
}

impl Verified {
    fn holds(&self, now: SystemTime) -> bool {
        let ended = |hold: &Hold| now >= hold.until || hold.ended.is_cancelled();
        now < self.again && !self.known.hold.as_ref().is_some_and(ended)
    }
}

/// Good tokens by their digests.
#[derive(Debug, Default)]
pub(super) struct VerifiedTokens {
    tokens: Mutex<BTreeMap<TokenDigest, Arc<Verified>>>,
}

impl VerifiedTokens {
    pub(super) fn get(&self, digest: &TokenDigest, now: SystemTime) -> Option<Arc<Verified>> {
        let mut tokens = self.tokens.lock();
        let found = tokens.get(digest)?.clone();
        if found.holds(now) {
            return Some(found);
        }
        tokens.remove(digest);
        None
    }

    pub(super) fn put(&self, digest: TokenDigest, verified: Arc<Verified>) {
        let mut tokens = self.tokens.lock();
        if tokens.len() >= MOST && !tokens.contains_key(&digest) {
            // Digests are as good as random, and so is the one behind this.
            let behind = tokens.range((Bound::Excluded(digest), Bound::Unbounded)).next();
            let goes = behind.or_else(|| tokens.iter().next()).map(|(digest, _)| *digest);
            goes.map(|goes| tokens.remove(&goes));
        }
        tokens.insert(digest, verified);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sha2::{Digest as _, Sha256};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        authn::{By, Hold},
        identity::UserInfo,
    };

    #[test]
    fn good_tokens_are_remembered_while_they_are_good_and_never_too_many() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let (tokens, ended) = (VerifiedTokens::default(), CancellationToken::new());
        let verified = |until, again| {
            let hold = Hold { ended: ended.clone(), until: at(until), leaving: false };
            let known = Known { user: UserInfo::new("u", [""; 0]), by: By::Token, hold: Some(hold) };
            Arc::new(Verified { known, audiences: Vec::new(), again: at(again) })
        };
        for (digest, until, again) in [([1; 32], 10, 100), ([2; 32], 100, 10), ([3; 32], 100, 100)] {
            tokens.put(digest, verified(until, again));
            assert!(tokens.get(&digest, at(9)).is_some());
        }
        assert!(tokens.get(&[1; 32], at(10)).is_none() && tokens.get(&[2; 32], at(10)).is_none());
        for n in 0..MOST + 100 {
            tokens.put(Sha256::digest(n.to_be_bytes()).into(), verified(100, 100));
        }
        assert_eq!(tokens.tokens.lock().len(), MOST);
        let last: TokenDigest = Sha256::digest((MOST + 99).to_be_bytes()).into();
        assert!(tokens.get(&last, at(10)).is_some());
        ended.cancel();
        assert!(tokens.get(&last, at(10)).is_none());
    }
}
