//! One suite for every engine: what the core relies on, asked of a real runner.
//!
//! A [`Subject`] makes engines for the few models that the suite needs;
//! [`conformance_tests!`](crate::conformance_tests) makes a test of each case. The suite knows nothing
//! of an engine but its trait.

mod aside;
mod cases;
mod data;
mod probe;

use std::sync::Arc;

use kushi_core::{Batching, DataType, Engine, ModelSpec};

use crate::{echo_spec, tensor_spec};

pub use aside::Aside;
pub use cases::*;

/// Makes engines for the suite's models.
pub trait Subject {
    /// An engine that computes `model` on tensors of the types and shapes of `spec`; where a tensor of
    /// `spec` has another shape for the engine, that one. With a `max_batch_size` above 0, every shape
    /// has a batch dimension in front.
    fn engine(&self, model: Model, spec: &ModelSpec) -> Arc<dyn Engine>;

    /// Whether the engine has tensors of this type, in any number of dimensions.
    fn takes(&self, datatype: DataType) -> bool {
        let _ = datatype;
        true
    }

    /// Whether a model of the engine may have inputs with a default.
    fn has_optional_inputs(&self) -> bool {
        true
    }
}

/// A case by its name.
pub type Case = (&'static str, fn(&dyn Subject));

/// All cases, for a subject whose tests are not written in Rust.
pub const CASES: &[Case] = crate::conformance_cases! { conformance_table!() };

/// What an engine is to compute. Tensors have these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// `OUT` = `IN`.
    Identity,
    /// `X` = `X`, without a copy where the engine can do that.
    HandThrough,
    /// `SUM` = `A` + `B`, `DIFFERENCE` = `A` - `B`.
    SumAndDifference,
    /// `OUT` = `A` + `B`; `B` is 10 where it is left out.
    OptionalAddend,
    /// `OUT` = `IN` for 0 to 7; anything else makes the engine fail.
    SmallNumbersOnly,
    /// `OUT` = the positions of the elements of the vector `IN` that are not zero, of shape `[1, n]`.
    NonZero,
}

/// Rows of a full batch in the suite's models.
pub const FULL: usize = 8;

type Declared<'a> = (&'a str, DataType, &'a [i64]);

/// A specification with a batch dimension, under which no request waits for another.
pub(crate) fn spec(inputs: &[Declared<'_>], outputs: &[Declared<'_>]) -> ModelSpec {
    let tensors =
        |list: &[Declared<'_>]| list.iter().map(|(name, of, dims)| tensor_spec(name, *of, dims)).collect();
    ModelSpec {
        name: "subject".into(),
        max_batch_size: FULL,
        inputs: tensors(inputs),
        outputs: tensors(outputs),
        inline: false,
        ..echo_spec()
    }
}

/// The same for a model without a batch dimension.
pub(crate) fn unbatched(mut spec: ModelSpec) -> ModelSpec {
    spec.max_batch_size = 0;
    spec.batching = None;
    spec
}

/// The same with a queue that holds requests back until a batch is full.
pub(crate) fn patient(mut spec: ModelSpec) -> ModelSpec {
    spec.batching = Some(Batching {
        preferred_batch_sizes: vec![FULL],
        max_queue_delay_us: 600_000_000,
        preserve_ordering: false,
    });
    spec
}

/// Hands the names of all cases to another macro of this crate.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($then:ident!($($given:tt)*)) => {
        $crate::$then! { $($given)* =>
            every_datatype_passes_unchanged,
            strings_keep_zero_bytes_and_other_encodings,
            empty_tensors_pass,
            scalars_pass,
            a_request_of_several_rows_keeps_their_order,
            joined_requests_get_their_own_rows_back,
            requests_of_other_shapes_run_apart,
            the_engine_sees_the_reshaped_tensor,
            an_optional_input_may_be_left_out,
            only_wanted_outputs_come_back,
            an_engine_error_fails_the_request_that_caused_it_and_no_other,
            requests_of_a_failed_batch_that_nobody_waits_for_do_not_run_again,
            a_panic_fails_its_batch_and_no_other,
            outputs_may_depend_on_the_data_in_size,
            slots_run_side_by_side,
            the_capability_is_true,
            large_tensors_pass,
            inputs_may_lie_unaligned,
            answers_do_not_share_memory_with_inputs,
            answers_outlive_the_engine,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_table {
    (=> $($case:ident,)*) => {
        &[$((stringify!($case), $crate::conformance::$case),)*]
    };
}

/// One test for each case of the suite, on the subject that the expression makes.
#[macro_export]
macro_rules! conformance_tests {
    ($subject:expr) => {
        $crate::conformance_cases! { conformance_tests!($subject) }
    };
    ($subject:expr => $($case:ident,)*) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::$case(&$subject);
            }
        )*
    };
}
