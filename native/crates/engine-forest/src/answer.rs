//! What a forest answers for a row: its values, or which class they mean.

/// As Triton's backend "fil" tells them apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// One value, or one for each class.
    Values,
    /// Of a model with one value: that of the negative class in front.
    TwoProbabilities,
    /// The number of the class: the most likely one, or of a model with one value whether it is more than this.
    Class { threshold: f32 },
}

impl Answer {
    /// The number of values that it has for a row.
    pub fn width(self, classes: usize) -> usize {
        match self {
            Self::Values => classes,
            Self::TwoProbabilities => 2,
            Self::Class { .. } => 1,
        }
    }

    /// Writes it for the values of a row.
    pub(crate) fn write(self, values: &[f64], mut write: impl FnMut(usize, f32)) {
        match self {
            Self::Values => values.iter().enumerate().for_each(|(index, &value)| write(index, value as f32)),
            Self::TwoProbabilities => {
                write(0, (1.0 - values[0]) as f32);
                write(1, values[0] as f32);
            }
            Self::Class { threshold } => write(
                0,
                match values {
                    [value] => f32::from(u8::from(*value as f32 > threshold)),
                    _ => most_likely(values) as f32,
                },
            ),
        }
    }
}

/// The first of those that are equal.
fn most_likely(values: &[f64]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}
