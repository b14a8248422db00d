//! Whatever a file says, reading it ends with a forest that can be asked, or with an error.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kushi_core::ErrorKind;
use kushi_engine_forest::{Answer, Forest, ForestModel, ForestOptions};
use proptest::prelude::*;

use crate::written::{Place, checkpoint, small};

fn refused(bytes: &[u8]) -> String {
    let error = Forest::read(bytes).expect_err("it is no forest");
    assert_eq!(error.kind, ErrorKind::ConfigInvalid);
    error.message.to_string()
}

#[test]
fn a_checkpoint_that_ends_too_soon_or_goes_on_is_refused() {
    let whole = small();
    for length in 0..whole.len() {
        refused(&whole[..length]);
    }
    Forest::read(&whole).expect("it is whole");
    assert!(refused(&[&whole[..], &[0]].concat()).ends_with("it goes on behind its last tree"));
}

#[test]
fn what_is_no_tree_is_refused() {
    let leaf = Place::Leaf(1.0);
    for (places, reason) in [
        (vec![Place::Less(0, 0.0, 0, 1), leaf], "its nodes are no tree"),
        (vec![Place::Less(0, 0.0, 1, 1), leaf], "its nodes are no tree"),
        (vec![Place::Less(0, 0.0, 1, 9), leaf, leaf], "node 0 has the child 9, which is not there"),
        (vec![Place::Less(7, 0.0, 1, 2), leaf, leaf], "node 0 asks for feature 7, there are 2"),
        (vec![], "it has 0 nodes"),
    ] {
        let refusal = refused(&checkpoint(2, &[places]));
        assert!(refusal.contains(&format!("tree 0: {reason}")), "{refusal}");
    }
}

#[test]
fn a_size_beyond_the_file_takes_no_memory() {
    let mut bytes = small();
    // the number of trees, and that of classes
    for place in [14, 34] {
        bytes[place..place + 8].copy_from_slice(&(u64::MAX / 8).to_le_bytes());
        refused(&bytes);
    }
}

proptest! {
    #[test]
    fn a_forest_that_is_read_can_be_asked(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        rows in prop::collection::vec(any::<f32>(), 2),
    ) {
        let mut bytes = small();
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        if let Ok(forest) = Forest::read(&bytes) {
            // more of them than memory has room for is nothing to ask for here
            prop_assume!(forest.features() < 1 << 16 && forest.classes() < 1 << 16);
            let row: Vec<u8> = rows.iter().cycle().take(forest.features()).flat_map(|value| value.to_le_bytes()).collect();
            let forest = Arc::new(forest);
            for contributions in [false, true] {
                let options = ForestOptions { answer: Answer::Values, contributions, threads: 1 };
                if let Ok(model) = ForestModel::new(Arc::clone(&forest), options) {
                    let stop = AtomicBool::new(false);
                    for output in 0..model.outputs().len() {
                        let mut room = model.room(output, 1).expect("there is memory");
                        model.write(output, &row, &mut room, &stop).expect("it is answered");
                    }
                }
            }
        }
    }
}
