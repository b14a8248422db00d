//! Runs that are ended before they end by themselves.

use std::sync::Arc;

use kushi_core::{Buffer, DataType, ErrorKind, ModelSpec, Shape, Tensor, Ticket};
use kushi_engine_openvino::OpenVinoEngine;
use kushi_testkit::{echo_spec, tensor_spec};

use crate::asked::Asked;
use crate::models::{Directory, Graph, element, tensor};
use crate::{compile, read};

const SIZE: i64 = 256;
const LAYERS: usize = 400;

/// A chain of products, of so many rows.
fn long(rows: i64) -> Graph {
    let matrix = tensor(element(DataType::Fp32), &[rows, SIZE]);
    let weights: Vec<u8> = (0..SIZE * SIZE).flat_map(|_| 0.001_f32.to_le_bytes()).collect();
    let mut graph = Graph::default().initializer("W", element(DataType::Fp32), &[SIZE, SIZE], &weights);
    let mut last = "IN".to_owned();
    for layer in 0..LAYERS {
        let next = if layer + 1 == LAYERS { "OUT".to_owned() } else { format!("H{layer}") };
        graph = graph.node("MatMul", &[&last, "W"], &[&next]);
        last = next;
    }
    graph.input("IN", &matrix).output("OUT", &matrix)
}

/// Two instances of the chain.
fn asked(rows: i64) -> Asked {
    let directory = Directory::new();
    let spec = ModelSpec {
        max_batch_size: 0,
        batching: None,
        inputs: vec![tensor_spec("IN", DataType::Fp32, &[rows, SIZE])],
        outputs: vec![tensor_spec("OUT", DataType::Fp32, &[rows, SIZE])],
        instances: 2,
        inline: false,
        ..echo_spec()
    };
    let engine = OpenVinoEngine::new(compile(&read(&long(rows).save(&directory)), 2), &spec);
    Asked::new(spec, Arc::new(engine.expect("the specification fits")))
}

fn zeros(rows: i64) -> Vec<Tensor> {
    let data = Buffer::host(vec![0; (rows * SIZE * 4) as usize]);
    vec![Tensor { datatype: DataType::Fp32, shape: Shape::from_slice(&[rows, SIZE]), data }]
}

/// Two runs that nobody waits for, and how many of them have ended before they were through.
fn given_up(asked: &Asked, rows: i64) -> usize {
    let tickets = [0, 1].map(|key| asked.ask(key, zeros(rows)));
    kushi_testkit::until("both instances at work", || asked.runner.occupancy().running == 2);
    assert!(tickets.iter().all(Ticket::cancel));
    let errors = [0, 1].map(|key| asked.letters.answer(key).error().map(|error| error.kind));
    errors.iter().filter(|kind| **kind == Some(ErrorKind::Cancelled)).count()
}

#[test]
fn a_run_that_nobody_waits_for_ends_and_its_instance_runs_again() {
    const ROWS: i64 = 4_000;
    let asked = asked(ROWS);
    for _ in 0..3 {
        assert_eq!(given_up(&asked, ROWS), 2);
    }
    asked.ask(2, zeros(ROWS));
    assert_eq!(asked.answer(2).map(|bytes| bytes.len()), Ok((ROWS * SIZE * 4) as usize));
}

/// OpenVINO would give what comes next the shapes of the run that was ended.
#[test]
fn where_shapes_vary_a_run_goes_to_its_end_and_the_next_ones_have_their_own_shapes() {
    let asked = asked(-1);
    for round in 0..3 {
        given_up(&asked, 200 + round);
        for rows in 1..5 {
            asked.ask(2, zeros(rows));
            assert_eq!(asked.answer(2).map(|bytes| bytes.len()), Ok((rows * SIZE * 4) as usize));
        }
    }
}
