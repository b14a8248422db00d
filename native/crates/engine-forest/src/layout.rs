//! Lays a tree out anew: children side by side, "less than" as the only question.

use std::cmp::Ordering;

use crate::checkpoint::RawTree;
use crate::reader::{Fault, Number};

const LEAF: i8 = 0;
const NUMBER: i8 = 1;
const CATEGORY: i8 = 2;

const EQUAL: i8 = 1;
const LESS: i8 = 2;
const AT_MOST: i8 = 3;
const MORE: i8 = 4;
const AT_LEAST: i8 = 5;

/// Of `Node::more`: where a value is missing, it goes on with the left child.
const MISSING_GOES_LEFT: u32 = 1 << 31;
/// Numbers of nodes and leaves are below this.
pub(crate) const MOST_NODES: usize = (1 << 31) - 1;

/// A place in a tree. A row whose value is less than the threshold goes on with the left child, any other with the one
/// behind it. A leaf has itself behind `left`, and no value is less than its threshold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub threshold: Key,
    pub feature: u32,
    pub left: u32,
    /// Of a leaf its number among the leaves; of others the number of their `Test`, from 1, beside `MISSING_GOES_LEFT`.
    leaf_or_test: u32,
}

/// A number of 32 bits as a whole number of the same order, which a processor that takes the smallest numbers for zero
/// (a library may have told it so) compares like any other.
pub(crate) type Key = i32;

/// That of a value that is missing, and of no other.
pub(crate) const MISSING: Key = Key::MAX;
/// No key is less.
const NEVER: Key = Key::MIN;

pub(crate) fn key(value: f32) -> Key {
    if value.is_nan() {
        return MISSING;
    }
    match value.to_bits() as i32 {
        // zero with a sign is zero
        i32::MIN => 0,
        bits => turn(bits),
    }
}

fn number(key: Key) -> f32 {
    f32::from_bits(turn(key) as u32)
}

/// Of negative numbers the larger bits are the smaller number.
fn turn(bits: i32) -> i32 {
    bits ^ ((bits >> 31) as u32 >> 1) as i32
}

impl Node {
    fn leaf(at: usize, number: usize) -> Self {
        let left = (at as u32).wrapping_sub(1);
        Self { threshold: NEVER, feature: 0, left, leaf_or_test: number as u32 }
    }

    pub fn missing_goes_left(self) -> bool {
        self.leaf_or_test & MISSING_GOES_LEFT != 0
    }

    /// Of a leaf alone.
    pub fn leaf_number(self) -> usize {
        self.leaf_or_test as usize
    }

    pub fn is_leaf_at(self, at: u32) -> bool {
        self.left.wrapping_add(1) == at
    }

    /// Where a row with this value goes on. Not of a leaf.
    pub fn next(self, value: Key, tests: &[Test]) -> u32 {
        let goes_left = if value == MISSING {
            self.missing_goes_left()
        } else {
            match (self.leaf_or_test & !MISSING_GOES_LEFT) as usize {
                0 => value < self.threshold,
                test => tests[test - 1].holds(number(value)),
            }
        };
        self.left.wrapping_add(u32::from(!goes_left))
    }
}

/// What thresholds and leaves are made of.
pub(crate) trait Weight: Number + Into<f64> {
    /// The largest category that is told from its neighbours.
    const MOST_CATEGORY: u32;
}

impl Weight for f32 {
    const MOST_CATEGORY: u32 = 1 << f32::MANTISSA_DIGITS;
}

impl Weight for f64 {
    const MOST_CATEGORY: u32 = u32::MAX;
}

/// A question that is not "less than": what answers yes goes on with the left child.
#[derive(Debug)]
pub(crate) enum Test {
    Equal(f64),
    /// Sorted.
    OneOf(Vec<u32>),
    NotOneOf(Vec<u32>),
}

impl Test {
    pub fn holds(&self, value: f32) -> bool {
        let value = f64::from(value);
        let is_one_of = |categories: &[u32]| {
            (0.0..=f64::from(u32::MAX)).contains(&value) && categories.binary_search(&(value as u32)).is_ok()
        };
        match self {
            Self::Equal(other) => value.partial_cmp(other) == Some(Ordering::Equal),
            Self::OneOf(categories) => is_one_of(categories),
            Self::NotOneOf(categories) => !is_one_of(categories),
        }
    }
}

/// The trees so far.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub nodes: Vec<Node>,
    pub tests: Vec<Test>,
    /// Of each node, how much of the training data came by; empty where it is not known of all.
    pub covers: Vec<f64>,
    leaves: usize,
}

/// What a tree that was added has become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub root: u32,
    /// Steps from the root to the deepest leaf.
    pub depth: u32,
    /// The same to a leaf on average.
    pub mean_depth: u32,
    /// Whether it asks nothing but "less than".
    pub is_plain: bool,
}

impl Layout {
    /// `leaf` is called with the number of each leaf in the checkpoint, in the order in which they are numbered here.
    pub fn add<T: Weight>(
        &mut self,
        tree: &RawTree<T>,
        features: usize,
        mut leaf: impl FnMut(usize) -> Result<(), Fault>,
    ) -> Result<Placed, Fault> {
        let count = tree.kinds.len();
        if self.nodes.len() + count > MOST_NODES {
            return Err(format!("it has more than {MOST_NODES} nodes"));
        }
        let (root, tests) = (self.nodes.len(), self.tests.len());
        // In the order in which they are laid out, level by level.
        let mut order = vec![0_usize];
        let (mut depth, mut level_end, mut next) = (0, 1, 0);
        let (mut depths, mut leaves) = (0_u64, 0_u64);
        while next < order.len() {
            if next == level_end {
                (depth, level_end) = (depth + 1, order.len());
            }
            let raw = order[next];
            let at = root + next;
            if tree.kinds[raw] == LEAF {
                leaf(raw)?;
                self.nodes.push(Node::leaf(at, self.leaves));
                self.leaves += 1;
                (depths, leaves) = (depths + u64::from(depth), leaves + 1);
            } else {
                let question = self.question(tree, raw, features)?;
                let children = [tree.left[raw], tree.right[raw]].map(|child| {
                    usize::try_from(child)
                        .ok()
                        .filter(|&child| child < count)
                        .ok_or_else(|| format!("node {raw} has the child {child}, which is not there"))
                });
                let [left, right] = children;
                let (left, right) = (left?, right?);
                let mut missing_goes_left = tree.defaults_left[raw] != 0;
                let left_place = (root + order.len()) as u32;
                if question.is_turned {
                    missing_goes_left = !missing_goes_left;
                    order.extend([right, left]);
                } else {
                    order.extend([left, right]);
                }
                let missing = if missing_goes_left { MISSING_GOES_LEFT } else { 0 };
                self.nodes.push(Node {
                    threshold: question.threshold,
                    feature: question.feature,
                    left: left_place,
                    leaf_or_test: question.test as u32 | missing,
                });
                // what has more places than nodes goes in a circle
                if order.len() > count {
                    return Err("its nodes are no tree".into());
                }
            }
            next += 1;
        }
        if tree.covers.len() == count && self.covers.len() == root {
            self.covers.extend(order.iter().map(|&raw| tree.covers[raw]));
        }
        let mean_depth = depths.div_ceil(leaves.max(1)) as u32;
        Ok(Placed { root: root as u32, depth, mean_depth, is_plain: self.tests.len() == tests })
    }

    fn question<T: Weight>(
        &mut self,
        tree: &RawTree<T>,
        raw: usize,
        features: usize,
    ) -> Result<Question, Fault> {
        let feature = u32::try_from(tree.features[raw]).ok().filter(|&feature| (feature as usize) < features);
        let feature = feature.ok_or_else(|| {
            format!("node {raw} asks for feature {}, there are {features}", tree.features[raw])
        })?;
        let threshold: f64 = tree.thresholds[raw].into();
        let plain = |key, is_turned| Question {
            threshold: key,
            feature,
            // nothing is more than what is no number, either
            is_turned: is_turned && !threshold.is_nan(),
            test: 0,
        };
        let test = match (tree.kinds[raw], tree.comparisons[raw]) {
            (NUMBER, LESS) => return Ok(plain(less(threshold), false)),
            (NUMBER, AT_MOST) => return Ok(plain(at_most(threshold), false)),
            (NUMBER, MORE) => return Ok(plain(at_most(threshold), true)),
            (NUMBER, AT_LEAST) => return Ok(plain(less(threshold), true)),
            (NUMBER, EQUAL) => Test::Equal(threshold),
            (CATEGORY, _) => {
                let mut categories = tree.categories.of(raw)?.to_vec();
                categories.retain(|&category| category <= T::MOST_CATEGORY);
                categories.sort_unstable();
                if tree.categories_go_right[raw] != 0 {
                    Test::NotOneOf(categories)
                } else {
                    Test::OneOf(categories)
                }
            }
            (kind, comparison) => {
                return Err(format!(
                    "node {raw} is of kind {kind} and compares by {comparison}, which is unknown"
                ));
            }
        };
        self.tests.push(test);
        Ok(Question { threshold: NEVER, feature, is_turned: false, test: self.tests.len() })
    }
}

/// "Less than the threshold", with the children exchanged where `is_turned`; or a test.
struct Question {
    threshold: Key,
    feature: u32,
    is_turned: bool,
    test: usize,
}

/// `x < threshold` for every `x` of 32 bits; nothing is less than what is no number.
fn less(threshold: f64) -> Key {
    if threshold.is_nan() {
        return NEVER;
    }
    let near = threshold as f32;
    key(if f64::from(near) < threshold { near.next_up() } else { near })
}

/// `x <= threshold`: less than the key behind that of the largest number that is not above it.
fn at_most(threshold: f64) -> Key {
    if threshold.is_nan() {
        return NEVER;
    }
    let near = threshold as f32;
    key(if f64::from(near) > threshold { near.next_down() } else { near }) + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values() -> impl Strategy<Value = f32> {
        prop_oneof![
            any::<f32>(),
            prop::sample::select(vec![
                0.0,
                -0.0,
                1.0,
                f32::MAX,
                f32::MIN,
                f32::INFINITY,
                f32::NEG_INFINITY,
                f32::MIN_POSITIVE,
                1e-45,
                -1e-45,
            ]),
        ]
        .prop_filter("what is missing is asked elsewhere", |value| !value.is_nan())
    }

    /// Thresholds near the value, and any.
    fn thresholds() -> impl Strategy<Value = (f32, f64)> {
        let near = values().prop_flat_map(|value| {
            let wide = f64::from(value);
            let all = vec![
                wide,
                wide.next_up(),
                wide.next_down(),
                f64::from(value.next_up()),
                f64::from(value.next_down()),
            ];
            prop::sample::select(all).prop_map(move |threshold| (value, threshold))
        });
        prop_oneof![near, (values(), any::<f64>())]
    }

    proptest! {
        #[test]
        fn every_comparison_is_one_with_less((value, threshold) in thresholds()) {
            let wide = f64::from(value);
            let is_less = |threshold: Key| key(value) < threshold;
            prop_assert_eq!(is_less(less(threshold)), wide < threshold);
            prop_assert_eq!(is_less(at_most(threshold)), wide <= threshold);
            prop_assert!(threshold.is_nan() || is_less(at_most(threshold)) != (wide > threshold));
            prop_assert!(threshold.is_nan() || is_less(less(threshold)) != (wide >= threshold));
            prop_assert_eq!(key(number(key(value))), key(value));
            prop_assert!(!is_less(NEVER) && key(value) < MISSING);
        }
    }

    #[test]
    fn a_category_is_a_whole_number_however_it_goes_on() {
        let test = Test::OneOf(vec![0, 3, u32::MAX]);
        assert!([0.0, -0.0, 0.5, 3.0, 3.9].iter().all(|&value| test.holds(value)));
        assert!([-0.5, 1.0, 4.0, 4_294_967_296.0, f32::INFINITY].iter().all(|&value| !test.holds(value)));
    }
}
