//! Writes checkpoints of Treelite.

/// One place of a tree: its feature and threshold with the numbers of its children, or a value.
#[derive(Clone, Copy)]
pub enum Place {
    Less(i32, f32, i32, i32),
    Leaf(f32),
}

/// A regressor of trees.
pub fn checkpoint(features: i32, trees: &[Vec<Place>]) -> Vec<u8> {
    let count = trees.len();
    let mut written = Written::default();
    written.number(4_i32).number(8_i32).number(1_i32).number(2_u8).number(2_u8);
    written.number(count as u64).number(features).number(1_u8).number(0_u8).number(1_i32);
    written.array(&[1_i32]).array(&[1_i32, 1]).array(&vec![0_i32; count]).array(&vec![0_i32; count]);
    written.array(b"identity").number(1_f32).number(1_f32).array(&[0_f64]).array(b"{}").number(0_i32);
    for tree in trees {
        written.tree(tree);
    }
    written.0
}

#[derive(Default)]
struct Written(Vec<u8>);

trait Number: Copy {
    fn write(self, bytes: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Number for $number {
            fn write(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }
        }
    )*};
}

numbers!(i8, u8, i32, u32, u64, f32, f64);

impl Written {
    fn number(&mut self, number: impl Number) -> &mut Self {
        number.write(&mut self.0);
        self
    }

    fn array(&mut self, numbers: &[impl Number]) -> &mut Self {
        self.number(numbers.len() as u64);
        for number in numbers {
            number.write(&mut self.0);
        }
        self
    }

    fn tree(&mut self, places: &[Place]) {
        let of = |inner: fn(Place) -> i32| places.iter().map(|&place| inner(place)).collect::<Vec<_>>();
        let float = |inner: fn(Place) -> f32| places.iter().map(|&place| inner(place)).collect::<Vec<_>>();
        let is_inner = |place: &Place| i8::from(matches!(place, Place::Less(..)));
        let kinds: Vec<i8> = places.iter().map(is_inner).collect();
        self.number(places.len() as i32).number(0_u8).array(&kinds);
        self.array(&of(|place| if let Place::Less(_, _, left, _) = place { left } else { -1 }));
        self.array(&of(|place| if let Place::Less(_, _, _, right) = place { right } else { -1 }));
        self.array(&of(|place| if let Place::Less(feature, ..) = place { feature } else { -1 }));
        self.array(&vec![0_u8; places.len()]);
        self.array(&float(|place| if let Place::Leaf(value) = place { value } else { 0.0 }));
        self.array(&float(|place| if let Place::Less(_, threshold, ..) = place { threshold } else { 0.0 }));
        self.array(&vec![2_i8; places.len()]).array(&vec![0_u8; places.len()]);
        self.array(&[] as &[f32]).array(&[] as &[u64]).array(&[] as &[u64]);
        self.array(&[] as &[u32]).array(&[] as &[u64]).array(&[] as &[u64]);
        self.array(&[] as &[u64]).array(&[] as &[u8]);
        // twice as much of the data came by a place as by each of two leaves below it
        let covers: Vec<f64> = kinds.iter().map(|&kind| f64::from(kind + 1)).collect();
        self.array(&covers).array(&vec![1_u8; places.len()]);
        self.array(&[] as &[f64]).array(&[] as &[u8]);
        self.number(0_i32).number(0_i32);
    }
}

/// 10 for values below 0.5 of the first feature, else 20; and 1 where the second is below 0, else 2.
pub fn small() -> Vec<u8> {
    let tree = |feature, threshold, low, high| {
        vec![Place::Less(feature, threshold, 1, 2), Place::Leaf(low), Place::Leaf(high)]
    };
    checkpoint(2, &[tree(0, 0.5, 10.0, 20.0), tree(1, 0.0, 1.0, 2.0)])
}
