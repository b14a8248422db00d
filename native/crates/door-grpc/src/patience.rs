//! How long a client that gives or takes nothing is waited for.

use std::pin::pin;
use std::time::Duration;

use kushi_net::IoContext;
use tokio::time::{Instant, timeout};

/// A drain that begins meanwhile has less patience.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What comes of `future`. `None`: nothing has come of it since `since`, for longer than clients are waited for.
pub(crate) async fn patiently<T>(
    io: &IoContext,
    since: Instant,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    loop {
        let left = io.patience().saturating_sub(since.elapsed());
        match timeout(left.min(LOOK_EVERY), future.as_mut()).await {
            Ok(came) => return Some(came),
            Err(_) if left.is_zero() => return None,
            Err(_) => {}
        }
    }
}
