//! A checkpoint of Treelite, version 4, whose form Treelite documents and keeps between its minor versions.

use crate::reader::{Fault, Number, Reader};

pub(crate) const VERSION: i32 = 4;

const FLOAT32: u8 = 2;
const FLOAT64: u8 = 3;

/// What stands in front of the trees.
#[derive(Debug)]
pub(crate) struct Header {
    /// Whether thresholds and leaves have 64 bits.
    pub is_double: bool,
    pub trees: usize,
    pub features: usize,
    pub task: u8,
    /// Whether trees are averaged and not added.
    pub averages: bool,
    pub targets: i32,
    pub classes: Vec<i32>,
    pub leaf_shape: Vec<i32>,
    pub target_of: Vec<i32>,
    /// The class to which a tree adds; -1: to all, by leaves that have a value for each.
    pub class_of: Vec<i32>,
    pub postprocessor: String,
    pub sigmoid_alpha: f32,
    pub ratio_c: f32,
    pub base_scores: Vec<f64>,
}

/// One tree, as its arrays are.
#[derive(Debug)]
pub(crate) struct RawTree<T> {
    pub kinds: Vec<i8>,
    pub left: Vec<i32>,
    pub right: Vec<i32>,
    pub features: Vec<i32>,
    pub defaults_left: Vec<u8>,
    pub leaf_values: Vec<T>,
    pub thresholds: Vec<T>,
    pub comparisons: Vec<i8>,
    pub categories_go_right: Vec<u8>,
    pub leaf_vectors: Segments<T>,
    pub categories: Segments<u32>,
    /// How much of the training data came by, where it is known of every node.
    pub covers: Vec<f64>,
}

/// A piece of one array for each node.
#[derive(Debug)]
pub(crate) struct Segments<T> {
    values: Vec<T>,
    begins: Vec<u64>,
    ends: Vec<u64>,
}

impl<T: Number> Segments<T> {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self { values: reader.array()?, begins: reader.array()?, ends: reader.array()? })
    }

    /// That of a node; empty where it has none.
    pub fn of(&self, node: usize) -> Result<&[T], Fault> {
        let (Some(&begin), Some(&end)) = (self.begins.get(node), self.ends.get(node)) else { return Ok(&[]) };
        if begin == end {
            return Ok(&[]);
        }
        let piece = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
        let piece = piece.and_then(|(begin, end)| self.values.get(begin..end));
        piece.ok_or_else(|| format!("node {node} has values from {begin} to {end}, which are not there"))
    }
}

impl Header {
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let (major, minor): (i32, i32) = (reader.number()?, reader.number()?);
        let _patch: i32 = reader.number()?;
        if major != VERSION {
            return Err(format!("it is of version {major}.{minor}, expected {VERSION}"));
        }
        let types: (u8, u8) = (reader.number()?, reader.number()?);
        let is_double = match types {
            (FLOAT32, FLOAT32) => false,
            (FLOAT64, FLOAT64) => true,
            _ => return Err(format!("its thresholds and leaves have the types {types:?}, expected floats")),
        };
        let trees: u64 = reader.number()?;
        let features: i32 = reader.number()?;
        let header = Self {
            is_double,
            trees: usize::try_from(trees).map_err(|_| format!("it has {trees} trees"))?,
            features: usize::try_from(features).map_err(|_| format!("it has {features} features"))?,
            task: reader.number()?,
            averages: reader.number::<u8>()? != 0,
            targets: reader.number()?,
            classes: reader.array()?,
            leaf_shape: reader.array()?,
            target_of: reader.array()?,
            class_of: reader.array()?,
            postprocessor: reader.text()?,
            sigmoid_alpha: reader.number()?,
            ratio_c: reader.number()?,
            base_scores: reader.array()?,
        };
        let _attributes = reader.text()?;
        reader.skip_fields()?;
        Ok(header)
    }
}

impl<T: Number> RawTree<T> {
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let nodes: i32 = reader.number()?;
        let _has_categories: u8 = reader.number()?;
        let mut tree = Self {
            kinds: reader.array()?,
            left: reader.array()?,
            right: reader.array()?,
            features: reader.array()?,
            defaults_left: reader.array()?,
            leaf_values: reader.array()?,
            thresholds: reader.array()?,
            comparisons: reader.array()?,
            categories_go_right: reader.array()?,
            leaf_vectors: Segments::read(reader)?,
            categories: Segments::read(reader)?,
            covers: Vec::new(),
        };
        let counts: (Vec<u64>, Vec<u8>) = (reader.array()?, reader.array()?);
        let hessians: (Vec<f64>, Vec<u8>) = (reader.array()?, reader.array()?);
        // what the split has gained
        reader.skip_array(8)?;
        reader.skip_array(1)?;
        reader.skip_fields()?;
        reader.skip_fields()?;
        let lengths = [
            tree.kinds.len(),
            tree.left.len(),
            tree.right.len(),
            tree.features.len(),
            tree.defaults_left.len(),
            tree.leaf_values.len(),
            tree.thresholds.len(),
            tree.comparisons.len(),
            tree.categories_go_right.len(),
        ];
        match usize::try_from(nodes) {
            Ok(nodes) if nodes > 0 && lengths.iter().all(|&length| length == nodes) => {
                if is_known(&hessians, nodes) {
                    tree.covers = hessians.0;
                } else if is_known(&counts, nodes) {
                    tree.covers = counts.0.iter().map(|&count| count as f64).collect();
                }
                Ok(tree)
            }
            _ => Err(format!("it has {nodes} nodes, and arrays of {lengths:?} values for them")),
        }
    }
}

/// Whether there is a value for each node.
fn is_known<T>((values, present): &(Vec<T>, Vec<u8>), nodes: usize) -> bool {
    values.len() == nodes && present.len() == nodes && present.iter().all(|&present| present != 0)
}
