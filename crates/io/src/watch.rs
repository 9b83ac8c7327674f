//! Waiting for news of what others change on the host.

use manypath_host::News;
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// News that a task can wait for.
#[derive(Debug)]
pub struct Watch(AsyncFd<News>);

impl Watch {
    /// Of these. Must be called within a runtime.
    ///
    /// # Errors
    /// Those of the registration.
    pub fn new(news: News) -> io::Result<Self> {
        crate::sys::watch::watch(news, Interest::READABLE).map(Watch)
    }

    /// Waits until something was told that may concern us.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn next(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            let told = ready.get_inner().take()?;
            ready.clear_ready();
            if told {
                return Ok(());
            }
        }
    }
}
