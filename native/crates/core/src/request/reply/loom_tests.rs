//! Every interleaving of those who decide the fate of a request, in loom.

use loom::sync::Arc as LoomArc;
use loom::thread;

use super::*;

#[test]
fn one_of_three_decides_the_fate_of_a_request() {
    loom::model(|| {
        let claim = LoomArc::new(Claim::new(Window::default()));
        let caller = [Claim::cancel, Claim::expire].map(|give_up| {
            let claim = claim.clone();
            thread::spawn(move || give_up(&claim))
        });
        let answered = claim.answer();
        let [cancelled, expired] = caller.map(|thread| thread.join().unwrap());
        assert_eq!([answered, cancelled, expired].into_iter().filter(|&won| won).count(), 1);
        let reason = claim.abandoned().map(|error| error.kind);
        let expected = match (cancelled, expired) {
            (true, _) => Some(Error::cancelled().kind),
            (_, true) => Some(Error::expired().kind),
            _ => None,
        };
        assert_eq!(reason, expected);
    });
}
