//! SYN cookies (RFC 4987 section 3.6) that keep Multipath TCP: what a host that remembers nothing of a SYN hides in its
//! answer, and finds again in the third packet.
//!
//! The initial sequence number holds the age, the size of the peer's segments and a code over both, the addresses, the
//! ports and the peer's number. The low bits of the timestamp hold the other options. The key of MP_CAPABLE is a keyed
//! hash, so that the key that the peer echoes proves itself (RFC 8684 section 3.1).

use core::hash::Hasher as _;

use manypath_tcp::machine::SMALLEST_MSS;
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::{FourTuple, Key, Mss};
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::options::Options;

use super::keys::KeyMaterial;
use super::rng::Rng;
use super::{HashKey, hash_addr};

/// A cookie is good for the rest of the period in which it was made, and for the next.
const PERIOD: Duration = Duration::from_secs(64);

/// Sizes of segments that a cookie can name: those of usual links, with and without tunnels. Who takes less than 536 bytes gets
/// the least that anybody gets, since nobody may get more than it takes.
const SIZES: [u16; 8] = [SMALLEST_MSS, 536, 1220, 1360, 1440, 1460, 4312, 8960];

/// What who does not say takes in any case (RFC 9293 section 3.7.1).
const UNSAID: u16 = 536;

/// Bits of a cookie for the size and for the period; the others are the code.
const SIZE_BITS: u32 = 3;
const PERIOD_BITS: u32 = 2;
const CODE_BITS: u32 = 32 - SIZE_BITS - PERIOD_BITS;

/// Bits of a timestamp: the window scale, and whether selective acknowledgements are possible.
const STAMP_BITS: u32 = 5;
/// In place of a shift, which is 14 at most: no window scale.
const UNSCALED: u32 = 15;

/// Keys that are tried before a SYN gets none, for each that belongs to this stack.
const TRIES: u32 = 4;

/// What a third packet proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recalled {
    /// The size of the peer's segments, rounded down to one of a few.
    pub mss: Mss,
    period: u64,
}

/// Makes and reads cookies.
#[derive(Debug)]
pub struct SynCookies {
    secret: HashKey,
    /// Keys that are tried: more where only some tokens lead to this stack.
    tries: u32,
}

impl SynCookies {
    /// Draws the secret. Of the tokens, one in `2^home_bits` leads to this stack.
    pub fn new(rng: &mut Rng, home_bits: u32) -> Self {
        Self {
            secret: HashKey::draw(rng),
            tries: TRIES << home_bits.min(10),
        }
    }

    /// The sequence number with which a SYN is answered.
    pub fn isn(&self, now: Instant, tuple: &FourTuple, irs: SeqNum, mss: Option<Mss>) -> SeqNum {
        let mss = mss.map_or(UNSAID, |Mss(mss)| mss);
        let size = SIZES.partition_point(|size| *size <= mss).max(1) - 1;
        self.encode(period(now), tuple, irs, size)
    }

    fn encode(&self, period: u64, tuple: &FourTuple, irs: SeqNum, size: usize) -> SeqNum {
        let mut hasher = self.hash(b'c', period, tuple, irs);
        hasher.write_u8(size as u8);
        let code = hasher.finish() as u32 & ((1 << CODE_BITS) - 1);
        let age = period as u32 & ((1 << PERIOD_BITS) - 1);
        SeqNum::new(age << (32 - PERIOD_BITS) | (size as u32) << CODE_BITS | code)
    }

    /// Reads the number that a third packet acknowledges; `None` if we did not make it, or too long ago.
    pub fn recall(
        &self,
        now: Instant,
        tuple: &FourTuple,
        irs: SeqNum,
        isn: SeqNum,
    ) -> Option<Recalled> {
        let size = (isn.get() >> CODE_BITS) as usize & (SIZES.len() - 1);
        let this = period(now);
        let period = [Some(this), this.checked_sub(1)]
            .into_iter()
            .flatten()
            .find(|period| self.encode(*period, tuple, irs, size) == isn)?;
        Some(Recalled {
            mss: Mss(SIZES[size]),
            period,
        })
    }

    /// A key for the answer to a SYN, whose token is not `in_use`; `None` if there is none. // rfc8684:C7,C8
    pub fn key(
        &self,
        now: Instant,
        tuple: &FourTuple,
        irs: SeqNum,
        in_use: impl Fn(&KeyMaterial) -> bool,
    ) -> Option<KeyMaterial> {
        (0..self.tries)
            .map(|attempt| KeyMaterial::derive(self.nth_key(period(now), tuple, irs, attempt)))
            .find(|made| !in_use(made))
    }

    /// The key that a peer echoes is one that its SYN was answered with. // rfc8684:C7
    pub fn made_key(&self, of: &Recalled, tuple: &FourTuple, irs: SeqNum, key: Key) -> bool {
        (0..self.tries).any(|attempt| {
            super::mac::equal(&self.nth_key(of.period, tuple, irs, attempt).0, &key.0)
        })
    }

    fn nth_key(&self, period: u64, tuple: &FourTuple, irs: SeqNum, attempt: u32) -> Key {
        let mut hasher = self.hash(b'k', period, tuple, irs);
        hasher.write_u32(attempt);
        Key(hasher.finish().to_be_bytes())
    }

    fn hash(
        &self,
        what: u8,
        period: u64,
        tuple: &FourTuple,
        irs: SeqNum,
    ) -> siphasher::sip::SipHasher24 {
        let mut hasher = self.secret.hasher();
        hasher.write_u8(what);
        hasher.write_u64(period);
        hash_addr(&mut hasher, tuple.local);
        hash_addr(&mut hasher, tuple.remote);
        hasher.write_u32(irs.get());
        hasher
    }
}

fn period(now: Instant) -> u64 {
    now.as_nanos() / PERIOD.as_nanos()
}

/// Hides a SYN's options in the low bits of a timestamp, which grows no larger by that: what follows must not seem older.
pub fn stamp_with(stamp: u32, syn: &Options) -> u32 {
    let scale = syn
        .window_scale
        .map_or(UNSCALED, |shift| u32::from(shift.min(14)));
    let bits = scale << 1 | u32::from(syn.sack_permitted);
    let mask = (1 << STAMP_BITS) - 1;
    let hidden = stamp & !mask | bits;
    if hidden > stamp {
        hidden.wrapping_sub(1 << STAMP_BITS)
    } else {
        hidden
    }
}

/// The window scale and the permission of selective acknowledgements that a timestamp hides.
pub fn read_stamp(stamp: u32) -> (Option<u8>, bool) {
    let bits = stamp & ((1 << STAMP_BITS) - 1);
    let scale = (bits >> 1) as u8;
    (
        Some(scale).filter(|scale| u32::from(*scale) != UNSCALED),
        bits & 1 != 0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> FourTuple {
        FourTuple {
            local: "10.0.0.1:80".parse().expect("address"),
            remote: ([10, 0, 0, 2], port).into(),
        }
    }

    #[test]
    fn a_cookie_is_recalled_by_who_got_it_and_not_too_late() {
        let cookies = SynCookies::new(&mut Rng::new([1; 32]), 0);
        let (now, irs) = (Instant::from_secs(64 * 9 + 60), SeqNum::new(77));
        for (mss, named) in [
            (0, SMALLEST_MSS),
            (100, SMALLEST_MSS),
            (535, SMALLEST_MSS),
            (536, 536),
            (1219, 536),
            (1459, 1440),
            (1460, 1460),
            (9000, 8960),
        ] {
            let isn = cookies.isn(now, &tuple(1), irs, Some(Mss(mss)));
            let recalled = |later, port, irs, isn| {
                let at = now + Duration::from_secs(later);
                cookies.recall(at, &tuple(port), irs, isn).map(|r| r.mss)
            };
            assert_eq!(recalled(0, 1, irs, isn), Some(Mss(named)));
            assert_eq!(recalled(64, 1, irs, isn), Some(Mss(named)));
            assert_eq!(recalled(68, 1, irs, isn), None, "too old");
            assert_eq!(recalled(0, 2, irs, isn), None, "another port");
            assert_eq!(recalled(0, 1, irs + 1, isn), None, "another number");
            assert_eq!(recalled(0, 1, irs, isn + 1), None, "another cookie");
        }
        let isn = cookies.isn(now, &tuple(1), irs, None);
        assert_eq!(
            cookies.recall(now, &tuple(1), irs, isn).map(|r| r.mss),
            Some(Mss(536))
        );
    }

    #[test]
    fn keys_prove_themselves_and_avoid_tokens_that_are_taken() {
        // rfc8684:C7,C8
        let cookies = SynCookies::new(&mut Rng::new([1; 32]), 0);
        let (now, irs) = (Instant::from_secs(1000), SeqNum::new(77));
        let isn = cookies.isn(now, &tuple(1), irs, None);
        let recalled = cookies.recall(now, &tuple(1), irs, isn).expect("just made");
        let first = cookies.key(now, &tuple(1), irs, |_| false).expect("free");
        let second = cookies
            .key(now, &tuple(1), irs, |made| made.token == first.token)
            .expect("another");
        assert_ne!(first.key(), second.key());
        for made in [first, second] {
            assert!(cookies.made_key(&recalled, &tuple(1), irs, made.key()));
            assert!(!cookies.made_key(&recalled, &tuple(2), irs, made.key()));
            assert!(!cookies.made_key(&recalled, &tuple(1), irs + 1, made.key()));
        }
        assert_eq!(cookies.key(now, &tuple(1), irs, |_| true), None);
    }

    #[test]
    fn options_hide_in_a_timestamp_that_does_not_grow() {
        for stamp in [100, 127, 128, 0xffff_ffff] {
            for window_scale in [None, Some(0), Some(7), Some(14)] {
                for sack_permitted in [false, true] {
                    let syn = Options {
                        window_scale,
                        sack_permitted,
                        ..Options::EMPTY
                    };
                    let hidden = stamp_with(stamp, &syn);
                    assert!(hidden <= stamp && stamp - hidden < 64, "{stamp} {hidden}");
                    assert_eq!(read_stamp(hidden), (window_scale, sack_permitted));
                }
            }
        }
    }
}
