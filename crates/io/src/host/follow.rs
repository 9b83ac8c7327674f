//! The task that follows the host's links, addresses and routes.

use super::attach::Attachment;
use crate::driver::Shared;
use crate::netlink::Follower;
use crate::watch::Watch;
use manypath_host::News;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Compares the host with what the stack was told, after every change.
pub(super) async fn follow(
    shared: Arc<Shared>,
    attachment: Arc<Mutex<Attachment>>,
    mut follower: Follower,
) {
    while follower.changed().await.is_ok() {
        // What is not right is told, and tried again with the next change.
        let _ = super::lock(&attachment).follow_host(&shared);
    }
}

/// How often the kernel gets back what arrives for connections that are over.
const GIVE_BACK: Duration = Duration::from_secs(5);

/// Looks at what we set up on the host whenever somebody changes what is near it.
pub(super) async fn keep(attachment: Arc<Mutex<Attachment>>, news: News) -> std::io::Result<()> {
    let news = Watch::new(news)?;
    loop {
        news.next().await?;
        super::lock(&attachment).repair();
    }
}

/// Forgets connections that are over where the kernel was told of them.
pub(super) async fn give_back(shared: Arc<Shared>, attachment: Arc<Mutex<Attachment>>) {
    let mut refused = false;
    loop {
        tokio::time::sleep(GIVE_BACK).await;
        let result = super::lock(&attachment).give_back(&shared);
        if let (Err(e), false) = (&result, refused) {
            tracing::warn!("connections that are over cannot be given back to the kernel: {e}");
        }
        refused = result.is_err();
    }
}
