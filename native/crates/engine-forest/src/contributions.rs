//! What each feature has contributed to the sums of a row: Shapley values, by the way of the training data through the
//! trees (TreeSHAP of Lundberg and others, 2018).

use crate::forest::{Forest, Leaves};
use crate::layout::Key;

/// Triton's backend has the same limit; the time grows with the square of it.
pub const MOST_DEPTH: usize = 32;

/// A feature on the way to a leaf.
#[derive(Clone, Copy, Default)]
struct Step {
    feature: usize,
    /// Which part of the data goes this way where the feature is not known.
    without: f64,
    /// Whether the row goes this way where it is: 0 or 1.
    with: f64,
    /// Of the sets of features that have as many members as stand in front of it.
    weight: f64,
}

/// The steps so far; copied on the way down.
#[derive(Clone, Copy)]
struct Path {
    steps: [Step; MOST_DEPTH + 2],
    length: usize,
}

impl Forest {
    /// For each class as many values as there are features, and one more for what no feature explains. All together
    /// they are the sum before anything is done with it.
    pub(crate) fn contributions(&self, row: &[Key], values: &mut [f64]) {
        match &self.leaves {
            Leaves::Single(leaves) => self.explain(leaves, row, values),
            Leaves::Double(leaves) => self.explain(leaves, row, values),
        }
    }

    fn explain<T: Copy + Into<f64>>(&self, leaves: &[T], row: &[Key], values: &mut [f64]) {
        values.fill(0.0);
        for tree in &self.trees {
            let classes = tree.class.map_or(0..self.classes, |class| class..class + 1);
            let mut walk = Walk { forest: self, leaves, row, values, classes };
            walk.expect(tree.placed.root, 1.0);
            walk.descend(
                tree.placed.root,
                Path { steps: [Step::default(); MOST_DEPTH + 2], length: 0 },
                Step { feature: self.features, without: 1.0, with: 1.0, weight: 0.0 },
            );
        }
        let width = self.features + 1;
        for (class, values) in values.chunks_exact_mut(width).enumerate() {
            for value in &mut *values {
                *value /= self.divisors[class];
            }
            values[self.features] += self.base_scores[class];
        }
    }
}

struct Walk<'a, T> {
    forest: &'a Forest,
    leaves: &'a [T],
    row: &'a [Key],
    values: &'a mut [f64],
    /// Those to which the tree adds.
    classes: std::ops::Range<usize>,
}

impl<T: Copy + Into<f64>> Walk<'_, T> {
    /// Adds what the tree says of the training data on average.
    fn expect(&mut self, place: u32, part: f64) {
        let node = self.forest.layout.nodes[place as usize];
        if node.is_leaf_at(place) {
            self.add(node.leaf_number(), self.forest.features, part);
            return;
        }
        for child in [node.left, node.left + 1] {
            self.expect(child, part * self.part(place, child));
        }
    }

    fn descend(&mut self, place: u32, mut path: Path, step: Step) {
        path.extend(step);
        let node = self.forest.layout.nodes[place as usize];
        if node.is_leaf_at(place) {
            for index in 1..path.length {
                let step = path.steps[index];
                self.add(
                    node.leaf_number(),
                    step.feature,
                    path.weight_without(index) * (step.with - step.without),
                );
            }
            return;
        }
        let feature = node.feature as usize;
        let (mut without, mut with) = (1.0, 1.0);
        if let Some(index) = (1..path.length).find(|&index| path.steps[index].feature == feature) {
            (without, with) = (path.steps[index].without, path.steps[index].with);
            path.remove(index);
        }
        let taken = node.next(self.row[feature], &self.forest.layout.tests);
        for child in [node.left, node.left + 1] {
            let without = without * self.part(place, child);
            let with = if child == taken { with } else { 0.0 };
            self.descend(child, path, Step { feature, without, with, weight: 0.0 });
        }
    }

    /// Which part of the data at a place went to this child.
    fn part(&self, place: u32, child: u32) -> f64 {
        let covers = &self.forest.layout.covers;
        let (all, some) = (covers[place as usize], covers[child as usize]);
        if all > 0.0 { some / all } else { 0.0 }
    }

    fn add(&mut self, leaf: usize, feature: usize, factor: f64) {
        let width = self.forest.features + 1;
        for (index, class) in self.classes.clone().enumerate() {
            let value: f64 = self.leaves[leaf * self.classes.len() + index].into();
            self.values[class * width + feature] += factor * value;
        }
    }
}

impl Path {
    fn extend(&mut self, step: Step) {
        let depth = self.length;
        self.steps[depth] = Step { weight: if depth == 0 { 1.0 } else { 0.0 }, ..step };
        let places = (depth + 1) as f64;
        for index in (0..depth).rev() {
            let weight = self.steps[index].weight;
            self.steps[index + 1].weight += step.with * weight * (index + 1) as f64 / places;
            self.steps[index].weight = step.without * weight * (depth - index) as f64 / places;
        }
        self.length += 1;
    }

    /// Takes a step back that was made before the last.
    fn remove(&mut self, at: usize) {
        let depth = self.length - 1;
        let places = (depth + 1) as f64;
        let Step { without, with, .. } = self.steps[at];
        let mut next = self.steps[depth].weight;
        for index in (0..depth).rev() {
            let weight = self.steps[index].weight;
            if with > 0.0 {
                self.steps[index].weight = next * places / ((index + 1) as f64 * with);
                next = weight - self.steps[index].weight * without * (depth - index) as f64 / places;
            } else if without > 0.0 {
                self.steps[index].weight = weight * places / (without * (depth - index) as f64);
            }
        }
        for index in at..depth {
            let Step { feature, without, with, .. } = self.steps[index + 1];
            let weight = self.steps[index].weight;
            self.steps[index] = Step { feature, without, with, weight };
        }
        self.length -= 1;
    }

    /// The sum of the weights as they were without this step.
    fn weight_without(&self, at: usize) -> f64 {
        let depth = self.length - 1;
        let places = (depth + 1) as f64;
        let Step { without, with, .. } = self.steps[at];
        let (mut next, mut sum) = (self.steps[depth].weight, 0.0);
        for index in (0..depth).rev() {
            let weight = self.steps[index].weight;
            if with > 0.0 {
                let one = next * places / ((index + 1) as f64 * with);
                sum += one;
                next = weight - one * without * (depth - index) as f64 / places;
            } else if without > 0.0 {
                sum += weight * places / (without * (depth - index) as f64);
            }
        }
        sum
    }
}
