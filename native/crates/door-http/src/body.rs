//! Reads a request body: bounded, and without a copy where it arrives in one piece.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use hyper::header::EXPECT;
use kushi_core::Error;
use kushi_net::{Activity, Answering, Begun, COUNTED_BYTES, Owner, Pool, Reservation, Span, Stage};

use crate::HttpContext;
use crate::aligned::{Aligned, TRUSTED_LENGTH};
use crate::limits::{LONG_JSON, MAX_BODY_BYTES, json_too_large};
use crate::refusal::Refusal;

/// After so many bytes the other connections of the thread have a turn.
const TURN_BYTES: usize = 128 << 10;

/// How long a refused client may go on sending.
const DISCARD_PATIENCE: Duration = Duration::from_secs(30);
/// How much more it may send when it has not told how much there is.
const DISCARDED_UNTOLD: u64 = 16 << 20;

/// The body of a request, as far as it has not been read.
pub(crate) struct RequestBody {
    incoming: Incoming,
    is_begun: bool,
    is_whole: bool,
}

impl RequestBody {
    pub(crate) fn new(incoming: Incoming) -> Self {
        Self { is_begun: false, is_whole: incoming.is_end_stream(), incoming }
    }

    /// If the head told it.
    pub(crate) fn length(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }
}

/// How the body of a request is to be read.
pub(crate) struct Plan {
    /// Bytes.
    pub most: usize,
    /// Where the tensor data begins, if the head says so.
    pub json_length: Option<usize>,
    /// What to say beyond the largest body.
    pub refusal: fn(usize, usize) -> Error,
    /// Whose it is when it is put together.
    pub owner: Owner,
}

/// A whole body, with its share of what requests in flight may hold.
pub(crate) struct Received {
    pub bytes: Bytes,
    pub answering: Answering,
}

impl Received {
    fn at_once(bytes: Bytes, reservation: Option<Reservation>, context: &HttpContext) -> Self {
        let mut answering = context.io.net.begin_answer();
        if bytes.len() >= LONG_JSON {
            answering.prepare();
        }
        answering.reservation = reservation;
        Self { bytes, answering }
    }
}

pub(crate) async fn read(
    body: &mut RequestBody,
    plan: &Plan,
    context: &HttpContext,
    activity: &Activity,
) -> Result<Received, Refusal> {
    let most = plan.most;
    let declared = body.length().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    if let Some(length) = declared.filter(|&length| length > most) {
        return Err((plan.refusal)(length, most).into());
    }
    context.io.net.budget.check(declared.unwrap_or(0))?;
    activity.enter(Stage::Body);
    let Some(first) = next(body, activity).await? else {
        return Ok(Received::at_once(Bytes::new(), None, context));
    };
    if first.len() > most {
        return Err((plan.refusal)(first.len(), most).into());
    }
    let mut reservation = None;
    if first.len() >= COUNTED_BYTES {
        reservation.insert(context.io.net.budget.open()).cover(first.len())?;
    }
    if body.incoming.is_end_stream() {
        if let Some(reservation) = &mut reservation {
            reservation.settle(first.len());
        }
        return Ok(Received::at_once(first, reservation, context));
    }
    let reservation = reservation.unwrap_or_else(|| context.io.net.budget.open());
    let chunks = Chunks::begin(&first, activity);
    let collecting = Collecting { plan, declared, chunks, reservation };
    // A future of its own: those of small requests are not as large as this one.
    Box::pin(collecting.collect(first, body, context, activity)).await
}

/// A body that comes in pieces.
struct Collecting<'a> {
    plan: &'a Plan,
    declared: Option<usize>,
    chunks: Chunks,
    reservation: Reservation,
}

/// The chunks of a body, by its pieces: where a read ends within a chunk it comes in two.
struct Chunks {
    count: usize,
    /// How often the connection had been read when the last piece came.
    reads: usize,
    /// Nothing of what had been read by then followed it.
    ended_read: bool,
}

impl Chunks {
    fn begin(first: &[u8], activity: &Activity) -> Self {
        let mut chunks = Self { count: 0, reads: 0, ended_read: false };
        chunks.add(first, activity);
        chunks
    }

    fn add(&mut self, piece: &[u8], activity: &Activity) {
        let (piece, read, reads) = (Span::of(piece), activity.last_read(), activity.reads());
        let continues = self.ended_read && reads == self.reads + 1 && piece.start == read.start;
        self.count += usize::from(!continues);
        (self.reads, self.ended_read) = (reads, piece.end == read.end);
    }
}

impl Collecting<'_> {
    async fn collect(
        mut self,
        first: Bytes,
        body: &mut RequestBody,
        context: &HttpContext,
        activity: &Activity,
    ) -> Result<Received, Refusal> {
        let Self { plan: plan @ &Plan { most, json_length, refusal, .. }, declared, .. } = self;
        let (limits, pool, memory) = (&context.http.limits, &context.io.net.pool, &context.io.body_memory);
        let mut joining: Option<Joining> = None;
        let mut open = Aligned::begin(declared, first.len(), json_length, memory);
        open.bytes.extend_from_slice(&first);
        let (mut length, mut turn) = (first.len(), first.len());
        drop(first);
        while let Some(piece) = next(body, activity).await? {
            length += piece.len();
            self.chunks.add(&piece, activity);
            if length > most {
                return Err(refusal(length, most).into());
            }
            if declared.is_none() && self.chunks.count > limits.max_chunks {
                return Err(Refusal::Final(too_many_chunks(limits.max_chunks)));
            }
            self.reservation.cover(length)?;
            if piece.len() > open.room() - open.len() {
                if joining.is_none() && length <= TRUSTED_LENGTH {
                    open = open.grown((2 * length).min(TRUSTED_LENGTH), json_length, memory);
                } else {
                    let segment = open.finish(memory);
                    joining = Some(match joining.take() {
                        None => Joining::begin(segment, declared, plan, pool)?,
                        Some(joining) => {
                            // Meanwhile the client is not read: it is not the one who is late.
                            activity.enter(Stage::Work);
                            let joined = joining.join(segment, pool).await?;
                            activity.enter(Stage::Body);
                            joined
                        }
                    });
                    open = Aligned::new(TRUSTED_LENGTH, None, memory);
                }
            }
            open.bytes.extend_from_slice(&piece);
            turn += piece.len();
            if turn >= TURN_BYTES {
                turn = 0;
                drop(piece);
                tokio::task::yield_now().await;
            }
        }
        self.reservation.settle(length);
        // From here on the request is to be answered, however long it takes to put it together.
        let mut answering = context.io.net.begin_long_answer();
        answering.reservation = Some(self.reservation);
        let bytes = match joining {
            None => open.finish(memory),
            Some(joining) => {
                activity.enter(Stage::Work);
                joining.join(open.finish(memory), pool).await?.begun.end().await?.finish(memory)
            }
        };
        Ok(Received { bytes, answering })
    }
}

/// A body of several segments, which are put together while the next one is read.
struct Joining {
    begun: Begun<Aligned>,
    declared: Option<usize>,
    json_length: Option<usize>,
    owner: Owner,
}

impl Joining {
    fn begin(first: Bytes, declared: Option<usize>, plan: &Plan, pool: &Pool) -> Result<Self, Error> {
        let &Plan { json_length, owner, .. } = plan;
        let room = room(first.len(), declared);
        let begun = pool.begin(owner, first.len(), move |memory| {
            let mut whole = Aligned::new(room, json_length, memory);
            whole.bytes.extend_from_slice(&first);
            whole
        })?;
        Ok(Self { begun, declared, json_length, owner })
    }

    /// Returns when all segments before this one have been copied.
    async fn join(self, segment: Bytes, pool: &Pool) -> Result<Self, Error> {
        let Self { begun, declared, json_length, owner } = self;
        let mut whole = begun.end().await?;
        let begun = pool.begin(owner, segment.len(), move |memory| {
            let length = whole.len() + segment.len();
            if length > whole.room() {
                whole = whole.grown(room(length, declared), json_length, memory);
            }
            whole.bytes.extend_from_slice(&segment);
            whole
        })?;
        Ok(Self { begun, declared, json_length, owner })
    }
}

/// For a body of which so many bytes have arrived: as much again, or what the head has told.
fn room(arrived: usize, declared: Option<usize>) -> usize {
    declared.unwrap_or(usize::MAX).clamp(arrived, 2 * arrived)
}

/// Of a body in chunks that has not been read, because its request is refused: what is wrong with its size is said in the
/// place of `refusal`. Nothing of it is kept.
pub(crate) async fn limits_first(
    refusal: Refusal,
    headers: &HeaderMap,
    body: &mut RequestBody,
    context: &HttpContext,
    activity: &Activity,
) -> Refusal {
    let is_read = body.is_begun || body.is_whole || body.length().is_some();
    if is_read || refusal.is_final() || headers.contains_key(EXPECT) {
        return refusal;
    }
    activity.enter(Stage::Body);
    let limits = &context.http.limits;
    let mut chunks = Chunks { count: 0, reads: 0, ended_read: false };
    let mut length = 0;
    loop {
        match next(body, activity).await {
            Ok(Some(piece)) => {
                length += piece.len();
                chunks.add(&piece, activity);
                if length > limits.max_input_bytes {
                    return json_too_large(length, limits.max_input_bytes).into();
                }
                if chunks.count > limits.max_chunks {
                    return Refusal::Final(too_many_chunks(limits.max_chunks));
                }
            }
            Ok(None) => return refusal,
            Err(broken) => return broken,
        }
    }
}

/// What becomes of the rest of a body.
pub(crate) enum Rest {
    Nothing,
    /// The next request comes behind it.
    Drained,
    /// The connection cannot go on.
    Unread,
}

/// Takes in what is left of a body that was answered early: the connection would be reset otherwise,
/// and a client that is still sending would never read the answer.
pub(crate) fn discard(headers: &HeaderMap, body: RequestBody, activity: &Rc<Activity>) -> Rest {
    if body.is_whole || body.incoming.is_end_stream() {
        return Rest::Nothing;
    }
    let waits_for_leave = headers.contains_key(EXPECT);
    let length = body.length().unwrap_or(DISCARDED_UNTOLD);
    if waits_for_leave || length > MAX_BODY_BYTES as u64 {
        return Rest::Unread;
    }
    let (mut body, activity) = (body.incoming, activity.clone());
    tokio::task::spawn_local(async move {
        let take_in = async {
            let mut left = length;
            while left > 0
                && let Some(Ok(frame)) = body.frame().await
            {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
            }
        };
        // Dropped before its end, the body ends the connection.
        let _ = tokio::time::timeout(DISCARD_PATIENCE, take_in).await;
        activity.has_drained();
    });
    Rest::Drained
}

async fn next(body: &mut RequestBody, activity: &Activity) -> Result<Option<Bytes>, Refusal> {
    body.is_begun = true;
    loop {
        let frame = poll_fn(|context| match Pin::new(&mut body.incoming).poll_frame(context) {
            Poll::Pending if activity.take_overdue() => Poll::Ready(Err(Refusal::TimedOut)),
            Poll::Pending => Poll::Pending,
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
        });
        match frame.await? {
            None => {
                body.is_whole = true;
                return Ok(None);
            }
            Some(Err(_)) => return Err(Refusal::broken()),
            // Trailers say nothing that an inference request could use.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

fn too_many_chunks(most: usize) -> Error {
    Error::invalid(format!(
        "Chunked request body exceeds maximum of {most} non-empty chunks. Send fewer or larger HTTP chunks. Use \
         --http-max-chunks to increase the limit."
    ))
}
