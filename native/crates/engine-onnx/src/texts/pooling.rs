//! From what a network gives for the tokens of a text to its answer.

use serde::Deserialize;

/// How one vector comes of those of all tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    Mean,
    Cls,
    Max,
    /// That of the last token.
    Last,
    /// The network gives one vector for each text.
    None,
}

/// What is done to the numbers of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    None,
    /// The length becomes 1.
    Normalize,
    Sigmoid,
    Softmax,
}

/// Writes the answer to a text of so many `tokens` into `answer`. `row`: what the network gives for it, a vector for
/// each token, those behind its end among them.
pub(super) fn pool(how: Pooling, row: &[f32], tokens: usize, answer: &mut [f32]) {
    let width = answer.len();
    let vector = |token: usize| &row[token * width..(token + 1) * width];
    match how {
        Pooling::None => answer.copy_from_slice(&row[..width]),
        Pooling::Cls => answer.copy_from_slice(vector(0)),
        Pooling::Last => answer.copy_from_slice(vector(tokens - 1)),
        Pooling::Max => {
            answer.copy_from_slice(vector(0));
            for token in 1..tokens {
                for (value, other) in answer.iter_mut().zip(vector(token)) {
                    *value = value.max(*other);
                }
            }
        }
        Pooling::Mean => {
            answer.fill(0.0);
            for token in 0..tokens {
                for (value, other) in answer.iter_mut().zip(vector(token)) {
                    *value += other;
                }
            }
            let count = tokens as f32;
            for value in answer.iter_mut() {
                *value /= count;
            }
        }
    }
}

pub(super) fn activate(how: Activation, answer: &mut [f32]) {
    match how {
        Activation::None => {}
        Activation::Normalize => {
            let length = answer.iter().map(|value| value * value).sum::<f32>().sqrt();
            if length > 0.0 {
                for value in answer.iter_mut() {
                    *value /= length;
                }
            }
        }
        Activation::Sigmoid => {
            for value in answer.iter_mut() {
                *value = 1.0 / (1.0 + (-*value).exp());
            }
        }
        Activation::Softmax => {
            let largest = answer.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            for value in answer.iter_mut() {
                *value = (*value - largest).exp();
            }
            let sum: f32 = answer.iter().sum();
            for value in answer.iter_mut() {
                *value /= sum;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tokens and what stands behind them.
    const ROW: [f32; 6] = [1.0, 8.0, 3.0, 2.0, 100.0, 100.0];

    fn close(one: &[f32], other: &[f32]) -> bool {
        one.len() == other.len() && one.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-6)
    }

    #[test]
    fn only_tokens_of_the_text_count() {
        let cases = [
            (Pooling::Mean, [2.0, 5.0]),
            (Pooling::Cls, [1.0, 8.0]),
            (Pooling::Max, [3.0, 8.0]),
            (Pooling::Last, [3.0, 2.0]),
            (Pooling::None, [1.0, 8.0]),
        ];
        for (how, expected) in cases {
            let mut answer = [0.0; 2];
            pool(how, &ROW, 2, &mut answer);
            assert!(close(&answer, &expected), "{how:?} gives {answer:?}");
        }
    }

    #[test]
    fn answers_become_what_is_asked() {
        let cases: [(Activation, &[f32], &[f32]); 5] = [
            (Activation::None, &[3.0, 4.0], &[3.0, 4.0]),
            (Activation::Normalize, &[3.0, 4.0], &[0.6, 0.8]),
            (Activation::Normalize, &[0.0, 0.0], &[0.0, 0.0]),
            (Activation::Sigmoid, &[0.0, 1000.0], &[0.5, 1.0]),
            (Activation::Softmax, &[1000.0, 1000.0], &[0.5, 0.5]),
        ];
        for (how, given, expected) in cases {
            let mut answer = given.to_vec();
            activate(how, &mut answer);
            assert!(close(&answer, expected), "{how:?} of {given:?} is {answer:?}");
        }
    }
}
