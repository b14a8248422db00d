//! Looks after runs: none keeps an io thread from its connections for long, or clients that wait from their answers
//! because of one that has left.

use std::sync::Arc;
use std::time::Duration;

use crate::house::House;

/// How often such a run is looked for.
const LOOK: Duration = Duration::from_millis(500);

pub(crate) async fn watch(house: Arc<House>) {
    loop {
        tokio::time::sleep(LOOK).await;
        for runner in house.registry.runners() {
            runner.renew_runs();
        }
    }
}
