//! Waiting for the end of the server.

use std::future::poll_fn;
use std::task::Poll;

use kushi_net::Entered;

/// When the server closes its connections.
pub(crate) async fn closing(entered: &Entered<'_>) {
    poll_fn(|task| {
        entered.remember(task.waker());
        if entered.is_closing() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
