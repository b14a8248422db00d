//! What becomes of the tokens of an engine: pieces of text, one end, and nothing that goes on for nobody.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kushi_core::{
    Batch, Bound, Buffer, Capability, DataType, Engine, Error, ErrorKind, ModelSpec, Reply, Request,
    Response, Runner, RunnerOptions, Sent, Shape, Slot, SlotToken, Tensor, Ticket, Wanted, Window,
};
use kushi_engine_generative::{ChatOptions, GenerativeEngine, GenerativeOptions, token_spec};
use kushi_testkit::{Answer, Letterbox, echo_spec, int32, tensor_spec, until};

const PATIENCE: Duration = Duration::from_secs(10);
const STOPPED: i32 = 0;
const TOO_LONG: i32 = 1;

/// Keeps what it is asked, one request each, until a test answers.
#[derive(Default)]
struct Tokens(Mutex<Vec<Batch>>);

impl Tokens {
    fn asked(&self) -> std::sync::MutexGuard<'_, Vec<Batch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for Tokens {
    fn capability(&self) -> Capability {
        Capability { concurrent: true, inline: false, keeps_slots: true }
    }

    fn execute(&self, _slot: &mut Slot, batch: Batch) {
        self.asked().extend(batch.take_apart());
    }

    fn begin(&self, mut slot: SlotToken, batch: Batch) {
        self.execute(&mut slot, batch);
    }

    fn stop_run(&self, _slot: usize) -> bool {
        true
    }

    fn stop_unanswered(&self) {
        let asked = std::mem::take(&mut *self.asked());
        drop(asked);
    }
}

fn spec() -> ModelSpec {
    let optional =
        |name, datatype| kushi_core::TensorSpec { optional: true, ..tensor_spec(name, datatype, &[1]) };
    ModelSpec {
        name: "writer".into(),
        max_batch_size: 0,
        batching: None,
        inputs: vec![
            tensor_spec("text_input", DataType::Bytes, &[1]),
            optional("stream", DataType::Bool),
            optional("sampling_parameters", DataType::Bytes),
        ],
        outputs: vec![tensor_spec("text_output", DataType::Bytes, &[-1])],
        decoupled: true,
        instances: 2,
        inline: false,
        ..echo_spec()
    }
}

/// One token for each byte.
fn tokenizer() -> String {
    let is_shown = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut hidden = 255;
    let mut name = |byte: u8| {
        hidden += u32::from(!is_shown(byte));
        let code = if is_shown(byte) { u32::from(byte) } else { hidden };
        char::from_u32(code).expect("a character").to_string()
    };
    let vocab: serde_json::Map<_, _> = (0..=255u8).map(|byte| (name(byte), byte.into())).collect();
    let bytes = serde_json::json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true
    });
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [], "pre_tokenizer": bytes, "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    })
    .to_string()
}

struct Scene {
    tokens: Arc<Tokens>,
    letters: Arc<Letterbox>,
    runner: Arc<Runner>,
}

impl Scene {
    fn new() -> Self {
        let tokens = Arc::new(Tokens::default());
        let inner = Runner::start(token_spec(&spec()), vec![tokens.clone() as _], RunnerOptions::default());
        let options = GenerativeOptions {
            context: 64,
            kept_tokens: 1000,
            vocabulary: 256,
            ends: vec![0],
            most_running: 2,
            chat: ChatOptions::default(),
        };
        let engine =
            GenerativeEngine::new(&spec(), inner.expect("a runner"), tokenizer().as_bytes(), options);
        let engine: Arc<dyn Engine> = Arc::new(engine.expect("an engine"));
        let runner = Runner::start(spec(), vec![engine.clone(), engine], RunnerOptions::default());
        Self { tokens, letters: Arc::default(), runner: runner.expect("a runner") }
    }

    fn ask(&self, key: u64, prompt: &str, sampling: &str, streams: bool) -> Ticket {
        self.ask_with(key, prompt, sampling, streams, Window::default())
    }

    fn ask_with(&self, key: u64, prompt: &str, sampling: &str, streams: bool, window: Window) -> Ticket {
        let flag = Tensor {
            datatype: DataType::Bool,
            shape: Shape::from_slice(&[1]),
            data: Buffer::host(vec![u8::from(streams)]),
        };
        let inputs = [Some(bytes(prompt)), Some(flag), Some(bytes(sampling))].into_iter().collect();
        let bound = Bound { inputs, wanted: Wanted::new(), rows: 1 };
        let reply = Reply::with_window(self.letters.clone(), key, window);
        match self.runner.submit(Request::new(bound, self.runner.now(), reply)) {
            // dropping a lease has another thread take it
            Ok((ticket, _)) => ticket,
            Err((error, _)) => panic!("refused: {error}"),
        }
    }

    /// The next request of the engine of tokens.
    fn asked(&self) -> Batch {
        self.next(false)
    }

    /// The next one that cancels another.
    fn told(&self) -> Batch {
        self.next(true)
    }

    fn next(&self, cancels: bool) -> Batch {
        let is_next = |batch: &Batch| {
            let prompt = batch.request(0).and_then(|request| request.inputs[0].as_ref());
            prompt.is_some_and(|prompt| prompt.data.is_empty()) == cancels
        };
        let find = |asked: &[Batch]| asked.iter().position(is_next);
        until("a request of tokens", || find(&self.tokens.asked()).is_some());
        let mut asked = self.tokens.asked();
        let at = find(&asked).expect("it was there, and nobody else takes it");
        asked.remove(at)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let retired = self.runner.retire(PATIENCE);
        assert!(retired || std::thread::panicking(), "an instance did not come back");
        drop(self.letters.answers(0));
    }
}

fn bytes(text: &str) -> Tensor {
    let data = [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    Tensor { datatype: DataType::Bytes, shape: Shape::from_slice(&[1]), data: Buffer::host(data) }
}

fn step(text: &[u8], ends: &[i32]) -> Response {
    let tokens = int32(&[1, text.len() as i64], text.iter().map(|&byte| i32::from(byte)));
    let likely = Tensor {
        datatype: DataType::Fp32,
        shape: Shape::from_slice(&[1, text.len() as i64]),
        data: Buffer::host(vec![0; 4 * text.len()]),
    };
    let ends = int32(&[1, ends.len() as i64], ends.iter().copied());
    Response { outputs: [(0, tokens), (1, likely), (2, ends)].into_iter().collect(), ..Response::default() }
}

fn give(batch: &mut Batch, text: &str) {
    assert!(matches!(batch.send(0, step(text.as_bytes(), &[])), Sent::Accepted));
}

fn texts(answer: &Answer) -> Vec<String> {
    let text = |response: &Response| {
        let data = response.outputs[0].1.data.as_bytes();
        String::from_utf8(data[4..].to_vec()).expect("UTF-8")
    };
    answer.responses.iter().map(text).collect()
}

fn kind(answer: &Answer) -> Option<ErrorKind> {
    answer.error().map(|error| error.kind)
}

const GREEDY: &str = r#"{"temperature": 0, "max_tokens": 30}"#;

#[test]
fn tokens_become_pieces_and_the_last_one_comes_with_the_end() {
    let scene = Scene::new();
    scene.ask(1, "ask", GREEDY, true);
    let mut batch = scene.asked();
    give(&mut batch, "on");
    scene.letters.responses(1, 1);
    give(&mut batch, "e ");
    scene.letters.responses(1, 2);
    batch.end_with(0, step("two".as_bytes(), &[TOO_LONG]));
    let answer = scene.letters.answer(1);
    assert_eq!((texts(&answer), kind(&answer)), (vec!["on".into(), "e ".into(), "two".into()], None));
}

#[test]
fn without_a_stream_there_is_one_text_behind_what_was_asked() {
    let scene = Scene::new();
    scene.ask(1, "ask: ", GREEDY, false);
    let mut batch = scene.asked();
    give(&mut batch, "on");
    give(&mut batch, "e");
    batch.end_with(0, step(b"", &[STOPPED]));
    assert_eq!(texts(&scene.letters.answer(1)), ["ask: one"]);
}

#[test]
fn the_prompt_and_the_order_go_to_the_engine() {
    let scene = Scene::new();
    scene.ask(1, "ask", r#"{"temperature": 0.5, "max_tokens": 100, "seed": 3}"#, false);
    let batch = scene.asked();
    let request = batch.request(0).expect("a request");
    let input = |at: usize| request.inputs[at].as_ref().expect("an input").data.as_bytes().to_vec();
    assert_eq!(input(0), [97u32, 115, 107].map(u32::to_le_bytes).concat());
    let order = String::from_utf8(input(1)[4..].to_vec()).expect("UTF-8");
    // as much as there is room for
    for part in
        [r#""max_new_tokens":61"#, r#""temperature":0.5"#, r#""rng_seed":3"#, r#""stop_token_ids":[0]"#]
    {
        assert!(order.contains(part), "{part} in {order}");
    }
    batch.fail(&Error::new(ErrorKind::EngineFailed, "no matter"));
    scene.letters.answer(1);
}

#[test]
fn half_a_character_waits_for_the_other_half() {
    let scene = Scene::new();
    scene.ask(1, "ask", GREEDY, true);
    let mut batch = scene.asked();
    for byte in "\u{2603}".bytes() {
        assert!(matches!(batch.send(0, step(&[byte], &[])), Sent::Accepted));
    }
    batch.end_with(0, step(b".", &[STOPPED]));
    let texts = texts(&scene.letters.answer(1));
    assert_eq!(texts.concat(), "\u{2603}.");
    assert!(texts.iter().all(|text| !text.contains('\u{fffd}')));
}

#[test]
fn a_stop_ends_the_request_and_what_the_engine_does_for_it() {
    let scene = Scene::new();
    scene.ask(1, "ask", r#"{"temperature": 0, "max_tokens": 30, "stop": ["END"]}"#, true);
    let mut batch = scene.asked();
    give(&mut batch, "one E");
    give(&mut batch, "ND two");
    let answer = scene.letters.answer(1);
    assert_eq!((texts(&answer).concat(), kind(&answer)), ("one ".to_owned(), None));
    until("the engine hears of it", || batch.is_abandoned(0));
}

#[test]
fn a_token_that_ends_it_has_no_text_but_where_that_is_asked_for() {
    let scene = Scene::new();
    for (key, more, expected) in [
        (1, r#""stop_token_ids": [46]"#, "one"),
        (2, r#""stop_token_ids": [46], "ignore_eos": true"#, "one"),
        (3, r#""stop_token_ids": [46], "include_stop_str_in_output": true"#, "one."),
        (4, r#""stop_token_ids": [46], "min_tokens": 6"#, "one.tw"),
    ] {
        scene.ask(key, "ask", &format!(r#"{{"temperature": 0, "max_tokens": 30, {more}}}"#), true);
        let mut batch = scene.asked();
        give(&mut batch, "one.tw");
        batch.end_with(0, step(b".", &[STOPPED]));
        assert_eq!(texts(&scene.letters.answer(key)).concat(), expected, "{more}");
    }
}

#[test]
fn several_texts_are_made_apart_and_end_together() {
    let scene = Scene::new();
    scene.ask(1, "ask", r#"{"n": 3, "max_tokens": 9, "seed": 5, "stop": ["."]}"#, true);
    let mut batches: Vec<_> = (0..3).map(|_| scene.asked()).collect();
    let order = |batch: &Batch| {
        let input = batch.request(0).and_then(|request| request.inputs[1].clone()).expect("an order");
        String::from_utf8(input.data.as_bytes()[4..].to_vec()).expect("UTF-8")
    };
    for (batch, seed) in batches.iter().zip([5, 6, 7]) {
        assert!(order(batch).contains(&format!(r#""rng_seed":{seed}"#)));
    }
    give(&mut batches[1], "two.");
    // it has come to its end, and the others go on
    let mut told = scene.told();
    let id = |batch: &Batch| batch.request(0).expect("a request").id.clone();
    assert_eq!(id(&told), id(&batches[1]));
    told.end(0, Ok(()));
    batches.remove(1).end(0, Ok(()));
    give(&mut batches[0], "one");
    batches.remove(0).end_with(0, step(b"", &[TOO_LONG]));
    assert_eq!(scene.runner.inside(), 1);
    batches.remove(0).end_with(0, step(b"three", &[TOO_LONG]));
    let answer = scene.letters.answer(1);
    assert_eq!(kind(&answer), None);
    assert!(answer.responses.iter().all(|response| response.outputs[0].1.shape.as_slice() == [3]));
}

#[test]
fn where_one_of_several_fails_all_end() {
    let scene = Scene::new();
    scene.ask(1, "ask", r#"{"n": 2, "max_tokens": 9}"#, true);
    let (first, mut second) = (scene.asked(), scene.asked());
    first.fail(&Error::new(ErrorKind::EngineFailed, "broken"));
    assert_eq!(kind(&scene.letters.answer(1)), Some(ErrorKind::EngineFailed));
    until("the engine hears of it", || second.is_abandoned(0));
    second.end(0, Ok(()));
}

#[test]
fn the_engine_is_told_of_one_that_nobody_waits_for() {
    let scene = Scene::new();
    let ticket = scene.ask(1, "ask", GREEDY, true);
    let batch = scene.asked();
    assert!(ticket.cancel());
    let mut told = scene.told();
    let id = |batch: &Batch| batch.request(0).expect("a request").id.clone();
    assert_eq!(id(&told), id(&batch));
    let order = told.request(0).and_then(|request| request.inputs[1].clone()).expect("an order");
    assert_eq!(order.data.as_bytes(), [0; 4]);
    told.end(0, Ok(()));
    drop(batch);
}

#[test]
fn who_leaves_no_room_gets_the_pieces_together() {
    let scene = Scene::new();
    let window = Window { answers: 1, bytes: 1 };
    scene.ask_with(1, "ask", GREEDY, true, window);
    let mut batch = scene.asked();
    give(&mut batch, "0");
    scene.letters.responses(1, 1);
    // the letterbox takes each at once: how many there are depends on who is faster
    for number in 1..10 {
        give(&mut batch, &number.to_string());
    }
    batch.end_with(0, step(b".", &[STOPPED]));
    assert_eq!(texts(&scene.letters.answer(1)).concat(), "0123456789.");
}

#[test]
fn what_fails_there_fails_here_behind_what_there_was() {
    let scene = Scene::new();
    scene.ask(1, "ask", GREEDY, true);
    let mut batch = scene.asked();
    give(&mut batch, "one");
    scene.letters.responses(1, 1);
    batch.end(0, Err(Error::new(ErrorKind::EngineFailed, "broken")));
    let answer = scene.letters.answer(1);
    assert_eq!((texts(&answer), kind(&answer)), (vec!["one".into()], Some(ErrorKind::EngineFailed)));
}

#[test]
fn an_end_without_a_reason_is_an_error() {
    let scene = Scene::new();
    scene.ask(1, "ask", GREEDY, true);
    scene.asked().end(0, Ok(()));
    assert_eq!(kind(&scene.letters.answer(1)), Some(ErrorKind::EngineFailed));
}

#[test]
fn an_answer_that_makes_no_sense_is_an_error_of_its_request() {
    let scene = Scene::new();
    scene.ask(8, "ask", GREEDY, true);
    let mut batch = scene.asked();
    let mut response = step(b"x", &[]);
    response.outputs[0].1 = int32(&[1, 1], [-1]);
    assert!(matches!(batch.send(0, response), Sent::Accepted));
    assert_eq!(kind(&scene.letters.answer(8)), Some(ErrorKind::EngineFailed));
    scene.ask(9, "ask", GREEDY, true);
    let mut batch = scene.asked();
    assert!(matches!(batch.send(0, Response::default()), Sent::Accepted));
    assert_eq!(kind(&scene.letters.answer(9)), Some(ErrorKind::EngineFailed));
}

#[test]
fn who_goes_takes_his_request_with_him() {
    let scene = Scene::new();
    let ticket = scene.ask(1, "ask", GREEDY, true);
    let mut batch = scene.asked();
    give(&mut batch, "one");
    scene.letters.responses(1, 1);
    assert!(ticket.cancel());
    until("the engine hears of it", || batch.is_abandoned(0));
    assert_eq!(kind(&scene.letters.answer(1)), Some(ErrorKind::Cancelled));
    until("both slots at home", || scene.runner.inside() == 0);
}

#[test]
fn so_many_run_and_others_wait() {
    let scene = Scene::new();
    for key in 1..=3 {
        scene.ask(key, "ask", GREEDY, false);
    }
    let first = scene.asked();
    let _second = scene.asked();
    assert_eq!(scene.runner.backlog().requests, 1);
    drop(first);
    scene.asked();
}

#[test]
fn a_model_that_stops_ends_what_goes_on() {
    let scene = Scene::new();
    scene.ask(1, "ask", GREEDY, true);
    let _batch = scene.asked();
    scene.runner.retire(Duration::ZERO);
    assert!(scene.letters.answer(1).error().is_some());
    until("the slot at home", || scene.runner.inside() == 0);
}

#[test]
fn nothing_of_it_stays_when_it_goes() {
    let scene = Scene::new();
    let tokens = Arc::downgrade(&scene.tokens);
    scene.ask(1, "ask", GREEDY, false);
    scene.asked().end_with(0, step(b"one", &[STOPPED]));
    scene.letters.answer(1);
    drop(scene);
    until("the engine of tokens has gone", || tokens.upgrade().is_none());
}
