//! What is done with the sums of a row in the end, by the names of Treelite.

use crate::reader::Fault;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Finish {
    Identity,
    SignedSquare,
    Hinge,
    /// Of each class by itself.
    Sigmoid {
        alpha: f64,
    },
    Exponential,
    ExponentialStandardRatio {
        c: f64,
    },
    LogarithmOnePlusExp,
    Softmax,
}

impl Finish {
    pub fn named(name: &str, alpha: f32, c: f32) -> Result<Self, Fault> {
        Ok(match name {
            "identity" | "identity_multiclass" => Self::Identity,
            "signed_square" => Self::SignedSquare,
            "hinge" => Self::Hinge,
            "sigmoid" | "multiclass_ova" => Self::Sigmoid { alpha: alpha.into() },
            "exponential" => Self::Exponential,
            "exponential_standard_ratio" => Self::ExponentialStandardRatio { c: c.into() },
            "logarithm_one_plus_exp" => Self::LogarithmOnePlusExp,
            "softmax" => Self::Softmax,
            other => return Err(format!("its values end with '{other}', which is unknown")),
        })
    }

    pub fn apply(self, row: &mut [f64]) {
        let each = |row: &mut [f64], function: &dyn Fn(f64) -> f64| {
            for value in row {
                *value = function(*value);
            }
        };
        match self {
            Self::Identity => {}
            Self::SignedSquare => each(row, &|value| (value * value).copysign(value)),
            Self::Hinge => each(row, &|value| if value > 0.0 { 1.0 } else { 0.0 }),
            Self::Sigmoid { alpha } => each(row, &|value| 1.0 / (1.0 + (-alpha * value).exp())),
            Self::Exponential => each(row, &f64::exp),
            Self::ExponentialStandardRatio { c } => each(row, &|value| (-value / c).exp2()),
            Self::LogarithmOnePlusExp => each(row, &|value| value.exp().ln_1p()),
            Self::Softmax => {
                let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                each(row, &|value| (value - most).exp());
                let sum: f64 = row.iter().sum();
                each(row, &|value| value / sum);
            }
        }
    }
}
