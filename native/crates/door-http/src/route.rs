//! What a request may ask for: the routes, the methods that each takes, and the category that a token is asked for.

use std::borrow::Cow;

use kushi_core::Error;
use kushi_dataplane::Memory;
use kushi_oip::Category;

const GET_AND_POST: &str = "GET, POST";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// `version`: as the path has it, empty for the latest.
    Inference {
        model: Cow<'a, str>,
        version: &'a str,
        kind: InferenceRoute,
    },
    /// The model is named in the body.
    Texts(TextRoute),
    /// As clients of OpenAI ask what there is: all models, or one.
    Listing(Option<Cow<'a, str>>),
    Management(Management<'a>),
}

/// What is asked of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextRoute {
    Embeddings,
    /// The same of text-embeddings-inference.
    Embed,
    Rerank,
    Classify,
    Tokenize,
    ChatCompletions,
    Completions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Load,
    Unload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InferenceRoute {
    Infer,
    Generate,
    GenerateStream,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Management<'a> {
    Server,
    Live,
    Ready,
    AllStatistics,
    /// The text that the metrics door has.
    Metrics,
    /// `version`: empty for the latest.
    Model {
        model: Cow<'a, str>,
        version: &'a str,
        about: About,
    },
    /// `repository`: whether the path names one.
    Index {
        repository: bool,
    },
    Control {
        repository: bool,
        model: Cow<'a, str>,
        action: Control,
    },
    /// `region`: empty for all.
    Regions {
        memory: Memory,
        region: Cow<'a, str>,
        action: RegionAction,
    },
    Settings {
        of: Settings<'a>,
        /// Whether the request brings new ones.
        change: bool,
    },
}

/// What is asked about a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Metadata,
    Ready,
    Config,
    Statistics,
}

/// What can be set while the server runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Settings<'a> {
    Log,
    /// Of this model; empty for all.
    Trace(Cow<'a, str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionAction {
    Status,
    Register,
    Unregister,
}

/// Why a request leads nowhere.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoRoute {
    NotFound,
    /// The methods that the path takes.
    WrongMethod(&'static str),
    Refused(Error),
}

impl Route<'_> {
    /// The model whose version it names by something else than a number.
    pub(crate) fn labelled(&self) -> Option<&str> {
        let (Self::Inference { model, version, .. }
        | Self::Management(Management::Model { model, version, .. })) = self
        else {
            return None;
        };
        (!version.bytes().all(|byte| byte.is_ascii_digit())).then_some(&**model)
    }

    pub(crate) fn category(&self) -> Category {
        match self {
            Self::Inference { .. } | Self::Texts(_) | Self::Listing(_) => Category::Inference,
            Self::Management(route) => route.category(),
        }
    }

    /// The methods that the path takes.
    pub(crate) fn methods(&self) -> &'static str {
        match self {
            Self::Inference { .. } | Self::Texts(_) => "POST",
            Self::Listing(_) => "GET",
            Self::Management(route) => route.methods(),
        }
    }

    pub(crate) fn takes(&self, method: &str) -> bool {
        match self.methods() {
            GET_AND_POST => matches!(method, "GET" | "POST"),
            only => only == method,
        }
    }

    /// What has to be answered however busy the server is.
    pub(crate) fn tells_of_health(&self) -> bool {
        matches!(self, Self::Management(Management::Live | Management::Ready | Management::Metrics))
    }
}

impl Management<'_> {
    fn category(&self) -> Category {
        match self {
            Self::Server => Category::Metadata,
            Self::Live | Self::Ready => Category::Health,
            // They tell of every model what its statistics tell.
            Self::AllStatistics | Self::Metrics => Category::Statistics,
            Self::Model { about, .. } => match about {
                About::Metadata => Category::Metadata,
                About::Ready => Category::Health,
                About::Config => Category::ModelConfig,
                About::Statistics => Category::Statistics,
            },
            Self::Index { .. } | Self::Control { .. } => Category::ModelRepository,
            Self::Regions { .. } => Category::SharedMemory,
            Self::Settings { of: Settings::Log, .. } => Category::Logging,
            Self::Settings { of: Settings::Trace(_), .. } => Category::Trace,
        }
    }

    fn methods(&self) -> &'static str {
        match self {
            Self::Settings { .. } => GET_AND_POST,
            Self::Regions { action: RegionAction::Status, .. } => "GET",
            Self::Index { .. } | Self::Control { .. } | Self::Regions { .. } => "POST",
            _ => "GET",
        }
    }

    /// Whether the body of the request says something.
    pub(crate) fn takes_body(&self) -> bool {
        match self {
            Self::Settings { change, .. } => *change,
            route => route.methods() == "POST",
        }
    }
}
