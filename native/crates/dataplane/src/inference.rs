//! One inference, from the model that is asked to its place in a queue.

use std::sync::Arc;
use std::time::Instant;

use kushi_core::{Admission, Context, Error, ModelSpec, Parameter, Recipient, Reply, Request, Runner, Texts};

use crate::version_routes::{RouteKey, VersionRoutes};
use crate::{AskedVersion, Registry};

/// A request on its way to a model version. Where a reload takes that version's place, it goes on to the next one:
/// no request is refused because of a reload.
pub struct Inference {
    runner: Arc<Runner>,
    version: AskedVersion,
    /// Where the model shares out its requests: what says where this one goes.
    key: Option<RouteKey>,
    /// The same where no header has said it: the request itself may, once it has been read.
    undecided: Option<Arc<VersionRoutes>>,
}

/// What a request is to be made for.
pub struct Attempt<'a> {
    /// What it has to be bound to.
    pub spec: &'a Arc<ModelSpec>,
    pub reply: Reply,
    /// What was made for the version before, which takes nothing any more.
    pub refused: Option<Refused>,
}

/// A request that came back.
pub struct Refused {
    /// What it was bound to.
    pub spec: Arc<ModelSpec>,
    pub request: Box<Request>,
}

/// A request that has its place in a queue.
pub struct Begun<W, B> {
    /// For its answers, and its end behind them. Where this is dropped before, the request is cancelled.
    pub waiting: W,
    pub spec: Arc<ModelSpec>,
    /// What else was prepared.
    pub beside: B,
}

/// A version to which several requests go that belong together. Its drain waits for them.
pub struct KeptVersion {
    runner: Arc<Runner>,
    context: Context,
}

impl KeptVersion {
    pub fn spec(&self) -> &Arc<ModelSpec> {
        self.runner.spec()
    }

    /// What that version tells of texts, where it takes such.
    pub fn texts(&self) -> Option<&Arc<dyn Texts>> {
        self.runner.texts()
    }

    /// Hands in one of them.
    pub fn begin<R: Recipient>(
        &self,
        recipient: &R,
        request: impl FnOnce(Reply) -> Request,
    ) -> Result<R::Waiting, Error> {
        let (place, reply) = recipient.open();
        let request = Request { context: self.context.clone(), ..request(reply) };
        let (ticket, admission) = self.runner.submit(request).map_err(|(error, _)| error)?;
        let lease = match admission {
            Admission::Lead(lease) => Some(lease),
            Admission::Queued => None,
        };
        Ok(recipient.queued(place, ticket, lease))
    }
}

impl Attempt<'_> {
    /// Those of the request that came back, or the `first` ones.
    pub fn take_parameters(&mut self, first: &mut Vec<(String, Parameter)>) -> Vec<(String, Parameter)> {
        let own = self.refused.as_mut().map_or(first, |refused| &mut refused.request.parameters);
        std::mem::take(own)
    }
}

impl Inference {
    /// `header`: what came with the request under a name. Fails when no such model serves.
    pub fn find(
        registry: &Registry,
        model: &str,
        version: AskedVersion,
        mut header: impl FnMut(&str) -> Option<RouteKey>,
    ) -> Result<Self, Error> {
        let (mut key, mut undecided) = (None, None);
        let runner = registry.route(model, &version, |routes| {
            key = routes.sticky().and_then(&mut header);
            undecided = key.is_none().then(|| routes.clone());
            routes.choose(key)
        })?;
        Ok(Self { runner, version, key, undecided })
    }

    /// Of the version that is asked, as far as is known yet.
    pub fn spec(&self) -> &Arc<ModelSpec> {
        self.runner.spec()
    }

    /// Says that a request of at least so many bytes is being received. Fails when there will be no place for it: then
    /// it need not come.
    pub fn announce(&self, arrived: Instant, bytes: usize) -> Result<(), Error> {
        if self.undecided.is_some() {
            // It may go elsewhere.
            return Ok(());
        }
        self.runner.announce(arrived, bytes)
    }

    /// Keeps the version for several requests that belong together: all of them go there, also where another one takes its
    /// place meanwhile. `own`: what they have in common. Where a reload has been faster, the next version is kept.
    pub fn keep(mut self, registry: &Registry, own: &Context) -> Result<KeptVersion, Error> {
        loop {
            let error = match self.runner.keep(own) {
                Ok(context) => return Ok(KeptVersion { runner: self.runner, context }),
                Err(error) => error,
            };
            let key = self.key;
            match registry.moved(&self.runner, &self.version, |routes| routes.choose(key)) {
                Some(next) => self.runner = next?,
                None => return Err(error),
            }
        }
    }

    /// Hands in the request that `prepare` makes, which is asked again for each version that takes the place of the one
    /// before. Fails when the model takes no requests, and as `prepare` does.
    pub fn begin<R, Q, B, E>(
        mut self,
        registry: &Registry,
        recipient: &R,
        mut prepare: impl FnMut(Attempt<'_>) -> Result<(Q, B), E>,
    ) -> Result<Begun<R::Waiting, B>, E>
    where
        R: Recipient,
        Q: Into<Box<Request>>,
        E: From<Error>,
    {
        let mut refused = None;
        loop {
            let (place, reply) = recipient.open();
            let spec = self.runner.spec().clone();
            let (request, beside) = prepare(Attempt { spec: &spec, reply, refused })?;
            match self.submit(registry, recipient, place, request.into())? {
                Ok(waiting) => return Ok(Begun { waiting, spec, beside }),
                Err(request) => refused = Some(Refused { spec, request }),
            }
        }
    }

    /// The same where another thread may make the request, which is waited for.
    pub async fn begin_later<R, Q, B, E>(
        mut self,
        registry: &Registry,
        recipient: &R,
        mut prepare: impl AsyncFnMut(Attempt<'_>) -> Result<(Q, B), E>,
    ) -> Result<Begun<R::Waiting, B>, E>
    where
        R: Recipient,
        Q: Into<Box<Request>>,
        E: From<Error>,
    {
        let mut refused = None;
        loop {
            let (place, reply) = recipient.open();
            let spec = self.runner.spec().clone();
            let (request, beside) = prepare(Attempt { spec: &spec, reply, refused }).await?;
            match self.submit(registry, recipient, place, request.into())? {
                Ok(waiting) => return Ok(Begun { waiting, spec, beside }),
                Err(request) => refused = Some(Refused { spec, request }),
            }
        }
    }

    /// The request comes back where another version serves now, to which it has to be bound again.
    fn submit<R: Recipient>(
        &mut self,
        registry: &Registry,
        recipient: &R,
        place: R::Place,
        request: Box<Request>,
    ) -> Result<Result<R::Waiting, Box<Request>>, Error> {
        if let Some(next) = self.settle(registry, &request)? {
            self.runner = next;
            return Ok(Err(request));
        }
        let (error, request) = match self.runner.submit(request) {
            Ok((ticket, admission)) => {
                let lease = match admission {
                    Admission::Lead(lease) => Some(lease),
                    Admission::Queued => None,
                };
                return Ok(Ok(recipient.queued(place, ticket, lease)));
            }
            Err(refused) => refused,
        };
        let key = self.key;
        match registry.moved(&self.runner, &self.version, |routes| routes.choose(key)) {
            Some(next) => self.runner = next?,
            None => return Err(error.of_request(&request.id)),
        }
        Ok(Err(request))
    }

    /// The version that the request itself says, where that is another one than it was made for.
    fn settle(&mut self, registry: &Registry, request: &Request) -> Result<Option<Arc<Runner>>, Error> {
        let Some(routes) = self.undecided.take() else { return Ok(None) };
        self.key = routes.key(request);
        let Some(key) = self.key else { return Ok(None) };
        if routes.choose(Some(key)) == Some(self.runner.spec().version) {
            return Ok(None);
        }
        let model = &self.runner.spec().name;
        let next = registry.route(model, &self.version, |routes| routes.choose(Some(key)))?;
        Ok((!Arc::ptr_eq(&next, &self.runner)).then_some(next))
    }
}
