//! From the body of an inference request to a request that fits its model.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use kushi_core::{Context, Error, ModelSpec, Parameter, Reply, Request};
use kushi_net::{Answering, BodyMemory, Owner};
use kushi_shm::RegionRange;
use smallvec::SmallVec;

use crate::inputs::Scope;
use crate::limits::{LARGE_BODY, LONG_JSON};
use crate::request::{self, InferRequest};
use crate::response::Format;
use crate::{Http, HttpContext, raw};

/// What a request says beside its body.
#[derive(Clone)]
pub(crate) struct Frame {
    /// Parameters that came as headers.
    pub forwarded: Vec<(String, Parameter)>,
    pub arrived: Instant,
    pub deadline: Option<Instant>,
    /// Of its trace, if it has one.
    pub inherited: Context,
}

/// A request that fits its model, and how its answer is to be written. It is boxed at once: it is large, and goes a long
/// way.
pub(crate) type Prepared = (Box<Request>, (Format, HeldRegions));

/// Where inputs came from, held until the answer.
pub(crate) type HeldRegions = Vec<Arc<RegionRange>>;

/// Reads the body of a request and fits it to the model: aside, where that takes long. Fails when the request is
/// wrong.
pub(crate) async fn prepare(
    context: &HttpContext,
    spec: &Arc<ModelSpec>,
    (body, json_length): (&Bytes, usize),
    frame: Frame,
    reply: Reply,
    answering: &mut Answering,
) -> Result<Prepared, Error> {
    let is_short = match json_length {
        0 => body.len() < LARGE_BODY,
        _ => json_length < LONG_JSON,
    };
    let mut bytes = body.len();
    // So that its regions stay while it waits to be read again.
    let mut _held = None;
    if is_short {
        let request = read(&context.http, spec, (body, json_length), &context.io.body_memory)?;
        let aside_bytes: usize = request.inputs.iter().map(|draft| draft.data.aside_bytes()).sum();
        if aside_bytes == 0 {
            let added_bytes: usize = request.inputs.iter().map(|draft| draft.data.added_bytes()).sum();
            if added_bytes > 0 {
                answering.cover(body.len().saturating_add(added_bytes))?;
            }
            return fit(spec, request, frame, reply);
        }
        bytes += aside_bytes;
        _held = Some(request);
    }
    let (http, spec, body) = (context.http.clone(), spec.clone(), body.clone());
    let owner = Owner::model(&spec);
    let mut reservation = answering.take_reservation();
    let work = move |memory: &_| {
        let request = read(&http, &spec, (&body, json_length), memory)?;
        let added_bytes: usize = request.inputs.iter().map(|draft| draft.data.added_bytes()).sum();
        if added_bytes > 0 {
            let bytes = body.len().saturating_add(added_bytes);
            reservation.cover(bytes)?;
            reservation.settle(bytes);
        }
        fit(&spec, request, frame, reply).map(|prepared| (prepared, reservation))
    };
    let (prepared, reservation) = Box::pin(context.io.net.pool.run(owner, bytes, work)).await??;
    answering.reservation = Some(reservation);
    Ok(prepared)
}

fn read<'a>(
    http: &'a Http,
    spec: &'a ModelSpec,
    (body, json_length): (&'a Bytes, usize),
    memory: &'a BodyMemory,
) -> Result<InferRequest<'a>, Error> {
    let scope = Scope { model: &spec.name, limits: &http.limits, regions: &http.plane.regions, memory };
    match json_length {
        0 => raw::request(body, spec),
        _ => request::parse(body, json_length, scope),
    }
}

/// Copies what lies in regions.
fn fit(spec: &ModelSpec, request: InferRequest<'_>, frame: Frame, reply: Reply) -> Result<Prepared, Error> {
    let InferRequest {
        id,
        mut parameters,
        priority,
        timeout_us,
        sequence,
        inputs,
        outputs,
        binary_by_default,
    } = request;
    let regions = inputs.iter().filter_map(|input| input.data.region()).collect();
    let bound = {
        let names: SmallVec<[&str; 8]> = outputs.iter().map(|output| &*output.name).collect();
        spec.bind(&id, inputs, &names)?
    };
    let classes = spec.classes(outputs.iter().map(|output| (&*output.name, output.classes)))?;
    let format = Format::new(spec, &bound.wanted, outputs, binary_by_default)?;
    let Frame { forwarded, arrived, deadline, inherited } = frame;
    parameters.extend(forwarded);
    let request = Box::new(Request {
        id,
        classes,
        parameters,
        priority,
        timeout_us,
        sequence,
        deadline,
        context: inherited,
        ..Request::new(bound, arrived, reply)
    });
    Ok((request, (format, regions)))
}
