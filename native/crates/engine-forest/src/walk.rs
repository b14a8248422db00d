//! The way of rows down the trees.

use crate::forest::Forest;
use crate::layout::{Key, MISSING, Node, Test};

/// So many go down at the same time, since each step waits for memory.
pub(crate) const LANES: usize = 8;
/// After so many steps it is looked whether all have reached a leaf.
const STEPS_BETWEEN_LOOKS: u32 = 8;

/// Takes each lane from its root in `places` to a leaf. The row of a lane begins at its number in `begins`.
/// `SOME_MISSING`: values may be.
pub(crate) fn walk<const SOME_MISSING: bool>(
    nodes: &[Node],
    places: &mut [u32; LANES],
    values: &[Key],
    begins: &[usize; LANES],
    depth: u32,
) {
    let mut left = depth;
    while left > 0 {
        let steps = left.min(STEPS_BETWEEN_LOOKS);
        for _ in 0..steps {
            for (place, begin) in places.iter_mut().zip(begins) {
                let node = nodes[*place as usize];
                let value = values[begin + node.feature as usize];
                let mut goes_left = value < node.threshold;
                if SOME_MISSING {
                    // a leaf says of none that it goes left
                    goes_left |= value == MISSING && node.missing_goes_left();
                }
                *place = node.left.wrapping_add(u32::from(!goes_left));
            }
        }
        left -= steps;
        if left > 0 && places.iter().all(|&place| nodes[place as usize].is_leaf_at(place)) {
            return;
        }
    }
}

/// The leaf of one row in a tree that may have tests.
pub(crate) fn walk_tests(nodes: &[Node], tests: &[Test], root: u32, row: &[Key]) -> u32 {
    let mut place = root;
    loop {
        let node = nodes[place as usize];
        if node.is_leaf_at(place) {
            return place;
        }
        place = node.next(row[node.feature as usize], tests);
    }
}

/// Adds what the trees say of each row: `sums` has a value for each class of each row.
pub(crate) fn add<T: Copy + std::ops::AddAssign, const SOME_MISSING: bool>(
    forest: &Forest,
    leaves: &[T],
    values: &[Key],
    sums: &mut [T],
) {
    let (nodes, features, classes) = (&forest.layout.nodes[..], forest.features, forest.classes);
    let rows = values.len() / features;
    let grouped = match rows % LANES {
        // a group that is more than half full is worth it
        rest if rest * 2 > LANES => rows,
        rest => rows - rest,
    };
    for tree in &forest.trees {
        for first in (0..grouped).step_by(LANES) {
            let group = LANES.min(rows - first);
            let mut places = [tree.placed.root; LANES];
            if tree.placed.is_plain {
                let begins = std::array::from_fn(|lane| (first + lane.min(group - 1)) * features);
                walk::<SOME_MISSING>(nodes, &mut places, values, &begins, tree.placed.depth);
            } else {
                for (lane, place) in places.iter_mut().enumerate().take(group) {
                    let row = &values[(first + lane) * features..][..features];
                    *place = walk_tests(nodes, &forest.layout.tests, tree.placed.root, row);
                }
            }
            for (place, row) in places.iter().zip(first..rows) {
                let leaf = nodes[*place as usize].leaf_number();
                add_leaf(&mut sums[row * classes..][..classes], leaves, leaf, tree.class);
            }
        }
    }
    for row in grouped..rows {
        let begins = [row * features; LANES];
        let sums = &mut sums[row * classes..][..classes];
        for trees in forest.trees.chunks(LANES) {
            let mut places = [trees[0].placed.root; LANES];
            for (place, tree) in places.iter_mut().zip(trees) {
                *place = tree.placed.root;
            }
            if trees.iter().all(|tree| tree.placed.is_plain) {
                let depth = trees.iter().map(|tree| tree.placed.depth).max().unwrap_or(0);
                walk::<SOME_MISSING>(nodes, &mut places, values, &begins, depth);
            } else {
                let row = &values[row * features..][..features];
                for place in places.iter_mut().take(trees.len()) {
                    *place = walk_tests(nodes, &forest.layout.tests, *place, row);
                }
            }
            for (place, tree) in places.iter().zip(trees) {
                add_leaf(sums, leaves, nodes[*place as usize].leaf_number(), tree.class);
            }
        }
    }
}

/// To one class, or to all.
fn add_leaf<T: Copy + std::ops::AddAssign>(sums: &mut [T], leaves: &[T], leaf: usize, class: Option<usize>) {
    match class {
        Some(class) => sums[class] += leaves[leaf],
        None => {
            let values = &leaves[leaf * sums.len()..][..sums.len()];
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += *value);
        }
    }
}
