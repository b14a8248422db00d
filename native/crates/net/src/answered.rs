//! Waits on an io thread for what is answered elsewhere.

use tokio::sync::oneshot;

/// Hears the answer, from any thread. Whoever asked may have gone by then.
pub type OnAnswer<T> = Box<dyn FnOnce(T) + Send>;

/// Awaits what `begin` asks for. Work that it hands back is done on a thread that may block. `None`: nobody answers.
pub async fn answered<T: Send + 'static>(
    begin: impl FnOnce(OnAnswer<T>) -> Option<Box<dyn FnOnce() + Send>>,
) -> Option<T> {
    let (sender, receiver) = oneshot::channel();
    if let Some(work) = begin(Box::new(move |answer| drop(sender.send(answer)))) {
        tokio::task::spawn_blocking(work);
    }
    receiver.await.ok()
}
