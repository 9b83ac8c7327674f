//! Tokens that a converter gives to clients, for the Cookie TLV (RFC 8803 section 6.2.7): good for one address and an hour.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit as _, Mac as _};
use manypath_io::convert::cookie::{Key, TOKEN_LEN};
use manypath_wire::convert::Tlv;
use sha2::{Digest as _, Sha256};

/// How long a token is good.
pub(super) const LIFETIME: Duration = Duration::from_secs(3600);

/// Messages of SYNs that are remembered, so that none is acted upon twice.
const REMEMBERED: usize = 65_536;

/// What a message's cookie shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The client has the address that it says, and the key where there is one.
    Good,
    /// There is no cookie, or an empty one, by which a client asks for a token.
    Nothing,
    /// The token is too old, of another address or of another converter, or the proof is wrong.
    Bad,
}

/// Makes tokens and knows them again.
#[derive(Debug)]
pub(super) struct Tokens {
    secret: [u8; 32],
    began: Instant,
    seen: Mutex<Seen>,
}

/// Messages that came in SYNs, oldest first.
#[derive(Debug, Default)]
struct Seen {
    known: HashSet<[u8; 16]>,
    order: VecDeque<(u32, [u8; 16])>,
    /// Tokens made at or before this second prove nothing for SYNs any more: messages with them may have been forgotten.
    floor: Option<u32>,
}

impl Default for Tokens {
    fn default() -> Self {
        Self::new(secret(), Instant::now())
    }
}

/// A secret that nobody else has had. Where the system gives no random numbers, those of the process's hash tables serve.
fn secret() -> [u8; 32] {
    let mut secret = [0; 32];
    if getrandom::fill(&mut secret).is_err() {
        for part in secret.chunks_mut(8) {
            let number = RandomState::new().hash_one(std::process::id());
            part.copy_from_slice(&number.to_be_bytes());
        }
    }
    secret
}

impl Tokens {
    fn new(secret: [u8; 32], now: Instant) -> Self {
        Self {
            secret,
            began: now,
            seen: Mutex::default(),
        }
    }

    fn second(&self, now: Instant) -> u32 {
        let since = now.saturating_duration_since(self.began).as_secs();
        u32::try_from(since).unwrap_or(u32::MAX)
    }

    fn code(&self, second: u32, client: IpAddr) -> Hmac<Sha256> {
        // Invariant: HMAC takes a key of any length (RFC 2104 section 2).
        let mut code = Hmac::<Sha256>::new_from_slice(&self.secret).expect("any length");
        code.update(&second.to_be_bytes());
        match client.to_canonical() {
            IpAddr::V4(addr) => code.update(&addr.octets()),
            IpAddr::V6(addr) => code.update(&addr.octets()),
        }
        code
    }

    /// A token for an address.
    pub(super) fn issue(&self, now: Instant, client: IpAddr) -> [u8; TOKEN_LEN] {
        let second = self.second(now);
        let code = self.code(second, client).finalize().into_bytes();
        let mut token = [0; TOKEN_LEN];
        token[..4].copy_from_slice(&second.to_be_bytes());
        token[4..].copy_from_slice(&code[..TOKEN_LEN - 4]);
        token
    }

    /// Judges the cookie of a message whose other TLVs are these.
    pub(super) fn judge(
        &self,
        now: Instant,
        client: IpAddr,
        cookie: Option<&[u8]>,
        key: Option<&Key>,
        tlvs: &[Tlv<'_>],
    ) -> Shown {
        let Some(cookie) = cookie.filter(|cookie| !cookie.is_empty()) else {
            return Shown::Nothing;
        };
        let Some((token, rest)) = cookie.split_at_checked(TOKEN_LEN) else {
            return Shown::Bad;
        };
        let (second, code) = token.split_at(4);
        let second = second.try_into().map_or(0, u32::from_be_bytes);
        let age = self.second(now).checked_sub(second).map(u64::from);
        let is_young = age.is_some_and(|age| age < LIFETIME.as_secs());
        let is_ours = self
            .code(second, client)
            .verify_truncated_left(code)
            .is_ok();
        let proves = key.is_none_or(|key| key.proves(token, rest, tlvs));
        match is_young && is_ours && proves {
            true => Shown::Good,
            false => Shown::Bad,
        }
    }

    /// Whether the message of a SYN, whose cookie is good, comes for the first time. One that comes again may be a copy that
    /// somebody else has sent: it waits for the handshake. `with_key`: the message has a nonce of its own, and copies of it may come from other
    /// ports.
    pub(super) fn is_first(&self, client: SocketAddr, message: &[u8], with_key: bool) -> bool {
        let mut hash = Sha256::new();
        if !with_key {
            hash.update(client.port().to_be_bytes());
            hash.update(client.ip().to_string());
        }
        hash.update(message);
        let hash: [u8; 32] = hash.finalize().into();
        let mut short = [0; 16];
        short.copy_from_slice(&hash[..16]);
        let second = token_second(message).unwrap_or(0);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.floor.is_some_and(|floor| second <= floor) || !seen.known.insert(short) {
            return false;
        }
        seen.order.push_back((second, short));
        if seen.order.len() > REMEMBERED
            && let Some((second, oldest)) = seen.order.pop_front()
        {
            seen.known.remove(&oldest);
            seen.floor = seen.floor.max(Some(second));
        }
        true
    }
}

/// When the token in a message was made.
fn token_second(message: &[u8]) -> Option<u32> {
    let manypath_wire::convert::Parsed::Whole(message) =
        manypath_wire::convert::read(message).ok()?
    else {
        return None;
    };
    message.tlvs().find_map(|tlv| match tlv {
        Tlv::Cookie(cookie) => Some(u32::from_be_bytes(*cookie.first_chunk()?)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use manypath_wire::convert::{MAX_LEN, emit};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn a_token_is_good_for_its_address_and_its_hour() {
        let now = Instant::now();
        let tokens = Tokens::new([3; 32], now);
        let token = tokens.issue(now, HERE);
        let judge =
            |after, client| tokens.judge(now + after, client, Some(&token), None, &[Tlv::Info]);
        assert_eq!(judge(Duration::ZERO, HERE), Shown::Good);
        assert_eq!(judge(Duration::from_secs(3599), HERE), Shown::Good);
        assert_eq!(judge(Duration::from_secs(3600), HERE), Shown::Bad);
        assert_eq!(
            judge(Duration::ZERO, THERE),
            Shown::Bad,
            "of another client"
        );
        let others = Tokens::new([4; 32], now);
        let judged = others.judge(now, HERE, Some(&token), None, &[Tlv::Info]);
        assert_eq!(judged, Shown::Bad, "of another converter");
        for (cookie, wanted) in [
            (None, Shown::Nothing),
            (Some(&[][..]), Shown::Nothing),
            (Some(&token[..19]), Shown::Bad),
            (Some(&[0xff; 40][..]), Shown::Bad),
        ] {
            assert_eq!(tokens.judge(now, HERE, cookie, None, &[Tlv::Info]), wanted);
        }
    }

    #[test]
    fn with_a_key_a_token_alone_is_not_enough() {
        let now = Instant::now();
        let tokens = Tokens::new([3; 32], now);
        let key = Key::new(b"sixteen bytes at least").expect("long enough");
        let token = tokens.issue(now, HERE);
        let judge = |cookie: &[u8]| tokens.judge(now, HERE, Some(cookie), Some(&key), &[Tlv::Info]);
        assert_eq!(judge(&token), Shown::Bad);
        let cookie = key.cookie(&token, [1; 8], &[Tlv::Info]);
        assert_eq!(judge(&cookie), Shown::Good);
    }

    fn message(cookie: &[u8]) -> Vec<u8> {
        let mut out = [0; MAX_LEN];
        let n = emit(&[Tlv::Cookie(cookie), Tlv::Info], &mut out).expect("it fits");
        out[..n].to_vec()
    }

    #[test]
    fn a_message_is_acted_upon_once_and_what_may_be_forgotten_not_at_all() {
        let now = Instant::now();
        let tokens = Tokens::new([3; 32], now);
        let first = message(&tokens.issue(now, HERE));
        let from = |port| SocketAddr::new(HERE, port);
        assert!(tokens.is_first(from(1), &first, false));
        assert!(!tokens.is_first(from(1), &first, false), "a copy");
        assert!(
            tokens.is_first(from(2), &first, false),
            "another connection"
        );
        assert!(tokens.is_first(from(1), &first, true));
        assert!(
            !tokens.is_first(from(2), &first, true),
            "its nonce is known"
        );
        // As many others as are remembered push it out; then its token proves nothing any more.
        let later = message(&tokens.issue(now + Duration::from_secs(5), HERE));
        for n in 0..REMEMBERED {
            let port = u16::try_from(n % 65_536).unwrap_or(0);
            let client = SocketAddr::new(if n < 65_536 { THERE } else { HERE }, port);
            tokens.is_first(client, &later, false);
        }
        assert!(!tokens.is_first(from(1), &first, false));
        assert!(!tokens.is_first(from(9), &first, false));
        assert!(tokens.is_first(from(9), &later, false));
    }
}
