//! A local door for calls that the thread of a client drives, each on a connection of its own.
//!
//! So are streams: one that nobody takes from is not read from, and holds up no other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kushi_core::{Error, os_text};
use tokio::io::unix::AsyncFd;

use super::connection::{Connection, Outcome, Part};
use super::door::Door;
use super::texts;
use crate::background::Remote;
use crate::call::Room;
use crate::{Answer, Call, CallAnswer, InferCall, Streamed};

/// How long a call waits for a busy server to take its connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Server {
    door: Arc<Door>,
}

impl Server {
    pub(crate) fn new(door: Arc<Door>) -> Self {
        Self { door }
    }

    async fn connect(&self) -> Result<Connection<()>, Error> {
        // Mostly it is there at once.
        if let Ok(connection) = self.door.connect(None) {
            return Ok(connection);
        }
        let door = self.door.clone();
        let connecting = tokio::task::spawn_blocking(move || door.connect(Some(CONNECT_PATIENCE)));
        connecting.await.unwrap_or_else(|_| Err(texts::client_closed()))
    }

    async fn ask(
        &self,
        issue: impl FnOnce(&mut Connection<()>, Instant) -> Result<u64, Error>,
        take: impl AsyncFn(Part) -> Result<(), Error>,
    ) -> Result<Outcome, Error> {
        let mut connection = self.connect().await?;
        issue(&mut connection, Instant::now())?;
        drive(connection, take).await.map_err(|error| self.door.explain(error))?
    }
}

impl Remote for Server {
    async fn infer(&self, call: &InferCall, deadline: Option<Instant>) -> Result<Answer, Error> {
        let placed = self.door.arena().place(call);
        let issue = |connection: &mut Connection<()>, now| connection.infer(call, placed, (), deadline, now);
        match self.ask(issue, async |_| Err(texts::mixed_up())).await? {
            Outcome::Answer(answer) => Ok(answer),
            Outcome::CallAnswer(_) | Outcome::End => Err(texts::mixed_up()),
        }
    }

    async fn stream(
        &self,
        call: &InferCall,
        deadline: Option<Instant>,
        deliver: &dyn Fn(Streamed),
    ) -> Result<(), Error> {
        let placed = self.door.arena().place(call);
        let issue =
            |connection: &mut Connection<()>, now| connection.infer_in_parts(call, placed, (), deadline, now);
        let room = Room::new();
        let take = async |part: Part| {
            let held = room.hold(part.bytes).await?;
            deliver(Streamed::Answer(Answer { id: call.id.clone(), ..part.answer }, held));
            Ok(())
        };
        match self.ask(issue, take).await? {
            Outcome::End => Ok(()),
            Outcome::Answer(_) | Outcome::CallAnswer(_) => Err(texts::mixed_up()),
        }
    }

    async fn call(&self, call: &Call, deadline: Option<Instant>) -> Result<CallAnswer, Error> {
        let issue = |connection: &mut Connection<()>, now| connection.call(call, (), deadline, now);
        match self.ask(issue, async |_| Err(texts::mixed_up())).await? {
            Outcome::CallAnswer(answer) => Ok(answer),
            Outcome::Answer(_) | Outcome::End => Err(texts::mixed_up()),
        }
    }
}

/// Until its one call has ended; fails when the connection does. What `take` waits for is not read meanwhile.
async fn drive(
    mut connection: Connection<()>,
    take: impl AsyncFn(Part) -> Result<(), Error>,
) -> Result<Result<Outcome, Error>, Error> {
    let path = connection.door().path().to_owned();
    let unwatched = |error: std::io::Error| texts::unwatched(&path, &os_text(&error));
    #[allow(
        deprecated,
        reason = "what takes its place is unsafe; this descriptor is open until it is dropped"
    )]
    let socket = AsyncFd::new(connection.stream().clone()).map_err(unwatched)?;
    let mut ended = Vec::new();
    loop {
        let now = Instant::now();
        let wake = connection.tick(now, &mut ended)?;
        let all_sent = connection.flush(now)?;
        while let Some(part) = connection.next_part() {
            if let Err(error) = take(part).await {
                return Ok(Err(error));
            }
        }
        if let Some(ended) = ended.pop() {
            return Ok(ended.outcome);
        }
        let asleep = async {
            match wake {
                Some(wake) => tokio::time::sleep_until(wake.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            readable = socket.readable() => {
                let mut readable = readable.map_err(unwatched)?;
                if connection.receive(Instant::now(), &mut ended)? {
                    readable.clear_ready();
                }
            }
            writable = socket.writable(), if !all_sent => writable.map_err(unwatched)?.clear_ready(),
            () = asleep => {}
        }
    }
}
