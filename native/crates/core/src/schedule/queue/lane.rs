//! The requests of one level that wait in the order in which they came, and which of them may share a batch.
//!
//! Requests of equal shapes are a group, and each knows the one before it and the one behind it in that. One that leaves
//! from between others leaves a gap, so that none of those behind it moves; gaps are never more than the entries.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::{Entry, looked};

/// Which requests may share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Nobody asks: all are one group.
    None,
    /// Those of equal shapes that have come one behind the other.
    Neighbours,
    /// Those of equal shapes.
    Shapes,
}

/// Where an entry stands in its group.
#[derive(Clone, Copy, Default)]
pub(super) struct Links {
    group: u32,
    previous: Neighbour,
    next: Neighbour,
}

/// The number of one, if there is one: one more than that, so that it takes no more room.
#[derive(Clone, Copy, Default)]
struct Neighbour(Option<NonZeroU64>);

impl Neighbour {
    fn of(number: u64) -> Self {
        Self(NonZeroU64::new(number + 1))
    }

    fn number(self) -> Option<u64> {
        self.0.map(|more| more.get() - 1)
    }
}

pub(super) struct Lane {
    grouping: Grouping,
    /// By input, whether shapes make no difference.
    ragged: Arc<[bool]>,
    /// By their numbers. The first place and the last one hold entries.
    places: VecDeque<(u64, Option<Entry>)>,
    gaps: usize,
    groups: Groups,
}

#[derive(Default)]
struct Groups {
    all: Vec<Group>,
    free: Vec<u32>,
    /// Empty as long as there has been one group since the lane was empty.
    by_shapes: HashMap<Shapes, u32>,
    /// The first entries of those in the map.
    heads: BTreeSet<u64>,
}

struct Group {
    /// The number of its last entry.
    last: u64,
    rows: usize,
    /// None of its entries has come before.
    since: Instant,
    /// As it stands in the map, if it does.
    shapes: Option<Shapes>,
}

/// What has to be equal, as numbers: of each input whether it is there, how many dimensions it has, and those behind the
/// first.
type Shapes = SmallVec<[i64; 8]>;

impl Lane {
    pub(super) fn new(grouping: Grouping, ragged: Arc<[bool]>) -> Self {
        Self { grouping, ragged, places: VecDeque::new(), gaps: 0, groups: Groups::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.gaps
    }

    pub(super) fn has_one_group(&self) -> bool {
        self.groups.len() <= 1
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.places.iter().filter_map(|(_, place)| place.as_ref())
    }

    /// The first one of each group, in the order in which they came.
    pub(super) fn heads(&self) -> impl Iterator<Item = &Entry> {
        let heads = &self.groups.heads;
        let known = heads.iter().filter_map(|&head| self.places[self.at(head)?].1.as_ref());
        let most = match (heads.is_empty(), self.has_one_group()) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => usize::MAX,
        };
        let sought = self.iter().filter(|entry| entry.links.previous.number().is_none());
        known.chain(sought.take(most)).inspect(|_| looked())
    }

    /// The rows of the group of this entry, which is its first, and since when none of them waits longer.
    pub(super) fn extent(&self, number: u64) -> Option<(usize, Instant)> {
        let head = self.places[self.at(number)?].1.as_ref()?;
        let group = &self.groups.all[head.links.group as usize];
        Some((group.rows, group.since))
    }

    /// The group of this entry, from there on.
    pub(super) fn group_from(&self, number: u64) -> impl Iterator<Item = &Entry> {
        let mut next = self.at(number).map(|place| (number, place));
        std::iter::from_fn(move || {
            let (number, place) = next?;
            looked();
            let entry = self.places[place].1.as_ref().filter(|entry| entry.number == number)?;
            next = entry
                .links
                .next
                .number()
                .and_then(|number| Some((number, self.at_or_behind(place + 1, number)?)));
            Some(entry)
        })
    }

    /// Behind all others.
    pub(super) fn push(&mut self, mut entry: Entry) {
        let number = entry.number;
        let group = match self.places.back().and_then(|(_, last)| last.as_ref()) {
            None => {
                self.groups.clear();
                None
            }
            Some(last) if self.grouping == Grouping::None || entry.may_join(last, &self.ragged) => {
                Some(last.links.group)
            }
            Some(_) if self.grouping == Grouping::Neighbours => None,
            Some(last) if self.groups.by_shapes.is_empty() => {
                let first = self.places.front().map(|&(number, _)| number);
                self.groups.map(last, first, &self.ragged);
                None
            }
            Some(_) => self.groups.find(&entry, &self.ragged),
        };
        entry.links = Links::default();
        if let Some(group) = group {
            let previous = self.groups.all[group as usize].push(&entry);
            entry.links = Links { group, previous: Neighbour::of(previous), next: Neighbour::default() };
            if let Some(previous) = self.entry_mut(previous) {
                previous.links.next = Neighbour::of(number);
            }
        } else {
            let shapes = (!self.groups.by_shapes.is_empty()).then(|| shapes(&entry, &self.ragged));
            entry.links.group = self.groups.add(&entry, shapes);
        }
        self.places.push_back((number, Some(entry)));
    }

    /// The first one.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let &(number, _) = self.places.front()?;
        self.remove(number)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Entry> {
        let place = self.at(number)?;
        let entry = self.places[place].1.take()?;
        self.unlink(&entry);
        self.gaps += 1;
        self.close_gaps();
        Some(entry)
    }

    fn unlink(&mut self, entry: &Entry) {
        let (number, Links { group, previous, next }) = (entry.number, entry.links);
        self.groups.all[group as usize].rows -= entry.request.rows;
        if previous.number().is_none() && self.groups.heads.remove(&number) {
            self.groups.heads.extend(next.number());
        }
        if let Some(entry) = previous.number().and_then(|previous| self.entry_mut(previous)) {
            entry.links.next = next;
        }
        if let Some(entry) = next.number().and_then(|next| self.entry_mut(next)) {
            entry.links.previous = previous;
        } else if let Some(previous) = previous.number() {
            self.groups.all[group as usize].last = previous;
        } else {
            self.groups.remove(group);
        }
    }

    fn entry_mut(&mut self, number: u64) -> Option<&mut Entry> {
        let place = self.at(number)?;
        self.places[place].1.as_mut()
    }

    fn at(&self, number: u64) -> Option<usize> {
        if self.places.back().is_some_and(|&(last, _)| last == number) {
            return Some(self.places.len() - 1);
        }
        self.at_or_behind(0, number)
    }

    /// In this place, if it is not further back.
    fn at_or_behind(&self, place: usize, number: u64) -> Option<usize> {
        if self.places.get(place).is_some_and(|&(there, _)| there == number) {
            return Some(place);
        }
        self.places.binary_search_by_key(&number, |&(number, _)| number).ok()
    }

    /// Those at both ends at once; the others once they are the larger part: that costs no more than it took to make
    /// them.
    fn close_gaps(&mut self) {
        while let Some((_, None)) = self.places.front() {
            self.places.pop_front();
            self.gaps -= 1;
        }
        while let Some((_, None)) = self.places.back() {
            self.places.pop_back();
            self.gaps -= 1;
        }
        if self.gaps > self.len() {
            self.places.retain(|(_, place)| place.is_some());
            self.gaps = 0;
        }
    }
}

impl Groups {
    fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// There is none any more.
    fn clear(&mut self) {
        self.all.clear();
        self.free.clear();
        self.by_shapes.clear();
        self.heads.clear();
    }

    fn add(&mut self, first: &Entry, shapes: Option<Shapes>) -> u32 {
        let at = self.free.pop().unwrap_or(self.all.len() as u32);
        if let Some(shapes) = &shapes {
            self.by_shapes.insert(shapes.clone(), at);
            self.heads.insert(first.number);
        }
        let group =
            Group { last: first.number, rows: first.request.rows, since: first.request.arrived, shapes };
        match self.all.get_mut(at as usize) {
            Some(place) => *place = group,
            None => self.all.push(group),
        }
        at
    }

    /// The only group, which has this `last` entry and this first one, stands in the map from now on.
    fn map(&mut self, last: &Entry, first: Option<u64>, ragged: &[bool]) {
        let (group, shapes) = (last.links.group, shapes(last, ragged));
        self.all[group as usize].shapes = Some(shapes.clone());
        self.by_shapes.insert(shapes, group);
        self.heads.extend(first);
    }

    /// The group of an entry, if there is one.
    fn find(&self, entry: &Entry, ragged: &[bool]) -> Option<u32> {
        self.by_shapes.get(&shapes(entry, ragged)).copied()
    }

    fn remove(&mut self, at: u32) {
        if let Some(shapes) = self.all[at as usize].shapes.take() {
            self.by_shapes.remove(&shapes);
        }
        self.free.push(at);
    }
}

impl Group {
    /// Answers the number of the one before it.
    fn push(&mut self, entry: &Entry) -> u64 {
        self.rows += entry.request.rows;
        self.since = self.since.min(entry.request.arrived);
        std::mem::replace(&mut self.last, entry.number)
    }
}

fn shapes(entry: &Entry, ragged: &[bool]) -> Shapes {
    let mut shapes = Shapes::new();
    for (input, tensor) in entry.request.inputs.iter().enumerate() {
        match tensor {
            None => shapes.push(-1),
            Some(_) if ragged.get(input).is_some_and(|&ragged| ragged) => shapes.push(-2),
            Some(tensor) => {
                shapes.push(tensor.shape.len() as i64);
                shapes.extend(tensor.shape.iter().skip(1).copied());
            }
        }
    }
    shapes
}
