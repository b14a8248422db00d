//! A forest of decision trees, checked and ready to be asked.

use kushi_core::{Error, ErrorKind};

use crate::checkpoint::{Header, RawTree};
use crate::finish::Finish;
use crate::layout::{Layout, Placed, Weight};
use crate::reader::{Fault, Reader};

/// What the forest was trained for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    BinaryClassifier,
    Regressor,
    Classifier,
    Ranking,
    IsolationForest,
}

#[derive(Debug)]
pub struct Forest {
    pub(crate) layout: Layout,
    pub(crate) trees: Vec<Tree>,
    pub(crate) leaves: Leaves,
    pub(crate) features: usize,
    /// Values for each row; 1 unless it tells more than two classes apart.
    pub(crate) classes: usize,
    pub(crate) task: Task,
    /// Of each class, the number of trees where they are averaged.
    pub(crate) divisors: Vec<f64>,
    pub(crate) base_scores: Vec<f64>,
    pub(crate) finish: Finish,
}

#[derive(Debug)]
pub(crate) struct Tree {
    pub placed: Placed,
    /// To which it adds; `None`: to all.
    pub class: Option<usize>,
}

/// What leaves say: one value, or one for each class.
#[derive(Debug)]
pub(crate) enum Leaves {
    Single(Vec<f32>),
    Double(Vec<f64>),
}

impl Forest {
    /// From a checkpoint of Treelite.
    pub fn read(checkpoint: &[u8]) -> Result<Self, Error> {
        read(checkpoint).map_err(|fault| {
            Error::new(ErrorKind::ConfigInvalid, format!("a checkpoint of Treelite: {fault}"))
        })
    }

    pub fn features(&self) -> usize {
        self.features
    }

    pub fn classes(&self) -> usize {
        self.classes
    }

    pub fn task(&self) -> Task {
        self.task
    }

    /// Whether it is known of every node how much of the training data came by.
    pub fn has_covers(&self) -> bool {
        self.layout.covers.len() == self.layout.nodes.len()
    }

    /// Steps from a root to the deepest leaf.
    pub fn depth(&self) -> usize {
        self.trees.iter().map(|tree| tree.placed.depth as usize).max().unwrap_or(0)
    }

    /// Steps that a row takes, all trees together and on average of the leaves.
    pub(crate) fn steps(&self) -> usize {
        self.trees.iter().map(|tree| tree.placed.mean_depth as usize + 1).sum()
    }
}

fn read(checkpoint: &[u8]) -> Result<Forest, Fault> {
    let mut reader = Reader::new(checkpoint);
    let header = Header::read(&mut reader)?;
    let classes = check(&header)?;
    let task = match header.task {
        0 => Task::BinaryClassifier,
        1 => Task::Regressor,
        2 => Task::Classifier,
        3 => Task::Ranking,
        4 => Task::IsolationForest,
        other => return Err(format!("it is for task {other}, which is unknown")),
    };
    let finish = Finish::named(&header.postprocessor, header.sigmoid_alpha, header.ratio_c)?;
    let mut layout = Layout::default();
    let mut trees = Vec::new();
    let leaves = if header.is_double {
        Leaves::Double(read_trees(&mut reader, &header, classes, &mut layout, &mut trees)?)
    } else {
        Leaves::Single(read_trees(&mut reader, &header, classes, &mut layout, &mut trees)?)
    };
    if !reader.is_at_end() {
        return Err("it goes on behind its last tree".into());
    }
    let mut divisors = vec![if header.averages { 0.0 } else { 1.0 }; classes];
    for tree in trees.iter().filter(|_| header.averages) {
        match tree.class {
            Some(class) => divisors[class] += 1.0,
            None => divisors.iter_mut().for_each(|divisor| *divisor += 1.0),
        }
    }
    Ok(Forest {
        layout,
        trees,
        leaves,
        features: header.features,
        classes,
        task,
        divisors,
        base_scores: header.base_scores,
        finish,
    })
}

/// The number of classes.
fn check(header: &Header) -> Result<usize, Fault> {
    if header.targets != 1 {
        return Err(format!("it has {} targets, models of more than one are not supported", header.targets));
    }
    let classes = match header.classes[..] {
        [classes] if classes > 0 => classes,
        _ => return Err(format!("its target has {:?} classes", header.classes)),
    };
    if header.features == 0 {
        return Err("it has no features".into());
    }
    let scores = header.base_scores.len();
    if scores != classes as usize {
        return Err(format!("it has {scores} base scores for {classes} classes"));
    }
    if header.class_of.len() != header.trees || header.target_of.len() != header.trees {
        let (classes, targets) = (header.class_of.len(), header.target_of.len());
        return Err(format!(
            "it has {} trees, {classes} classes and {targets} targets for them",
            header.trees
        ));
    }
    if header.target_of.iter().any(|target| !(-1..=0).contains(target))
        || header.class_of.iter().any(|class| !(-1..classes).contains(class))
    {
        return Err("a tree is for a class that is not there".into());
    }
    Ok(classes as usize)
}

fn read_trees<T: Weight>(
    reader: &mut Reader<'_>,
    header: &Header,
    classes: usize,
    layout: &mut Layout,
    trees: &mut Vec<Tree>,
) -> Result<Vec<T>, Fault> {
    let mut leaves = Vec::new();
    for (index, &class) in header.class_of.iter().enumerate() {
        let class = usize::try_from(class).ok();
        let values = if class.is_some() { 1 } else { classes };
        if header.leaf_shape != [1, values as i32] {
            return Err(format!(
                "tree {index} needs leaves of {values} values, they have the shape {:?}",
                header.leaf_shape
            ));
        }
        let tree = RawTree::<T>::read(reader);
        let placed = tree.and_then(|tree| {
            layout.add(&tree, header.features, |leaf| {
                let vector = tree.leaf_vectors.of(leaf)?;
                match vector {
                    [] if values == 1 => leaves.push(tree.leaf_values[leaf]),
                    _ if vector.len() == values => leaves.extend_from_slice(vector),
                    _ => return Err(format!("leaf {leaf} has {} values, expected {values}", vector.len())),
                }
                Ok(())
            })
        });
        let placed = placed.map_err(|fault| format!("tree {index}: {fault}"))?;
        trees.push(Tree { placed, class: class.or((classes == 1).then_some(0)) });
    }
    Ok(leaves)
}
