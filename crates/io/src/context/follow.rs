//! The task that follows the host's links, addresses and routes.

use super::attach::Attachment;
use crate::driver::Shared;
use crate::netlink::{Follower, Snapshot};
use crate::path::{PathSpec, select};
use std::sync::{Arc, Mutex};

/// Compares the host with what the stack was told, after every change. What cannot be had now is left out and tried
/// again with the next change.
pub(super) async fn follow(
    shared: Arc<Shared>,
    attachment: Arc<Mutex<Attachment>>,
    mut follower: Follower,
    specs: Vec<PathSpec>,
) {
    while follower.changed().await.is_ok() {
        let Ok(host) = Snapshot::take() else { continue };
        let (paths, _missing) = select(&specs, &host);
        let _ = super::lock(&attachment).apply(&shared, &paths, &host);
    }
}
