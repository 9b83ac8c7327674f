//! The places of a forwarder: how many connections it carries at one time, and how many of them for one client.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// A client as limits see it: an IPv4 address, or of IPv6 the /64 that one subscriber has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    /// `None` for the loopback: all programs of the host share these addresses.
    fn of(peer: SocketAddr) -> Option<Self> {
        let ip = peer.ip().to_canonical();
        (!ip.is_loopback()).then(|| Self::at(ip))
    }

    /// The client at an address, programs of the host included.
    pub(crate) fn at(ip: IpAddr) -> Self {
        let ip = ip.to_canonical();
        Self(match ip {
            IpAddr::V4(_) => ip,
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
        })
    }
}

/// All places, and who has how many.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    free: Arc<Semaphore>,
    most_per_client: usize,
    taken: Mutex<HashMap<Client, usize>>,
}

impl Places {
    /// So many places in all, and so many of them for one client.
    pub(crate) fn new(most: usize, most_per_client: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            free: Arc::new(Semaphore::new(most)),
            most_per_client,
            taken: Mutex::default(),
        })
    }

    /// Places that are taken or reserved.
    pub(crate) fn taken(&self) -> usize {
        self.most - self.free.available_permits().min(self.most)
    }

    /// A place, if there is one now.
    pub(crate) fn try_reserve(&self) -> Option<Reserved> {
        Arc::clone(&self.free)
            .try_acquire_owned()
            .ok()
            .map(Reserved)
    }

    /// Waits for a place.
    pub(crate) async fn reserve(&self) -> Option<Reserved> {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.free).acquire_owned().await;
        permit.ok().map(Reserved)
    }

    /// Gives a reserved place to a client; `None` if it has as many as one client may have. Without `peer` it is a program of the host.
    pub(crate) fn give(
        self: &Arc<Self>,
        reserved: Reserved,
        peer: Option<SocketAddr>,
    ) -> Option<Place> {
        let client = peer.and_then(Client::of);
        if let Some(client) = client {
            let mut taken = self.lock();
            let count = taken.entry(client).or_default();
            if *count >= self.most_per_client {
                return None;
            }
            *count += 1;
        }
        Some(Place {
            client,
            places: Arc::clone(self),
            _reserved: reserved,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Client, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many connections all listeners carry together. Unlike [`Places`] it can be changed while they do.
#[derive(Debug)]
pub(crate) struct Total {
    /// As many as may be, and as there are.
    most_and_taken: Mutex<(usize, usize)>,
    freed: Notify,
}

impl Total {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most_and_taken: Mutex::new((most, 0)),
            freed: Notify::new(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (usize, usize)> {
        let lock = self.most_and_taken.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    /// As many as may be from now on; what is beyond that goes on.
    pub(crate) fn set(&self, most: usize) {
        self.lock().0 = most;
        self.freed.notify_waiters();
    }

    /// A place, if there is one now.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<PlaceOfAll> {
        let mut held = self.lock();
        let (most, taken) = *held;
        if taken >= most {
            return None;
        }
        held.1 += 1;
        drop(held);
        Some(PlaceOfAll(Arc::clone(self)))
    }

    /// Waits for a place.
    pub(crate) async fn take(self: &Arc<Self>) -> PlaceOfAll {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // From here on none that is freed is missed.
            freed.as_mut().enable();
            if let Some(place) = self.try_take() {
                return place;
            }
            freed.await;
        }
    }
}

/// One of the places of all listeners; dropping it frees it.
#[derive(Debug)]
pub(crate) struct PlaceOfAll(Arc<Total>);

impl Drop for PlaceOfAll {
    fn drop(&mut self) {
        self.0.lock().1 -= 1;
        self.0.freed.notify_one();
    }
}

/// A place that no client has yet.
#[derive(Debug)]
pub(crate) struct Reserved(
    #[expect(dead_code, reason = "its drop frees the place")] OwnedSemaphorePermit,
);

/// A client's place; dropping it frees it.
#[derive(Debug)]
pub(crate) struct Place {
    client: Option<Client>,
    places: Arc<Places>,
    _reserved: Reserved,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(client) = self.client else { return };
        let mut taken = self.places.lock();
        if let Some(count) = taken.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(places: &Arc<Places>, peer: &str) -> Option<Place> {
        let peer = format!("{peer}:1000").parse().expect("an address");
        places.give(places.try_reserve()?, Some(peer))
    }

    #[test]
    fn one_client_has_its_part_and_no_more() {
        let places = Places::new(4, 2);
        let first = enter(&places, "192.0.2.1").expect("free");
        let _second = enter(&places, "[::ffff:192.0.2.1]").expect("free");
        assert!(enter(&places, "192.0.2.1").is_none());
        // What was not given is free for others.
        let _third = enter(&places, "192.0.2.2").expect("free");
        drop(first);
        let _fourth = enter(&places, "192.0.2.1").expect("free again");
    }

    #[tokio::test]
    async fn the_places_of_all_are_waited_for_and_their_number_may_change() {
        let total = Arc::new(Total::new(1));
        let first = total.try_take().expect("free");
        assert!(total.try_take().is_none());
        let (second, ()) = tokio::join!(total.take(), async { drop(first) });
        total.set(2);
        let third = total.try_take().expect("one more");
        total.set(1);
        drop(second);
        assert!(total.try_take().is_none(), "one is still taken");
        drop(third);
        assert!(total.try_take().is_some());
    }

    #[test]
    fn a_subscriber_of_ipv6_is_one_client() {
        let places = Places::new(9, 1);
        let held = enter(&places, "[2001:db8:0:1::1]").expect("free");
        assert!(enter(&places, "[2001:db8:0:1:ffff::9]").is_none());
        assert!(enter(&places, "[2001:db8:0:2::1]").is_some());
        drop(held);
        assert!(places.lock().is_empty(), "who has gone is forgotten");
    }

    #[test]
    fn programs_of_the_host_itself_share_all_places() {
        let places = Places::new(3, 1);
        let held: Vec<_> = (0..3).map_while(|_| enter(&places, "127.0.0.1")).collect();
        assert_eq!(held.len(), 3);
        assert!(enter(&places, "[::1]").is_none(), "there are three in all");
    }
}
