//! What can go wrong, in one table: kind → HTTP status, that of OpenAI's routes, gRPC code, name, retryable.

use std::borrow::Cow;
use std::fmt;

use crate::base::shortened;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request breaks a rule of the protocol or of the model.
    InvalidInput,
    /// The request cannot be read at all. Triton answers INTERNAL here, and clients test for it.
    UnreadableInput,
    /// The request names memory that is not registered: `NOT_FOUND` in Triton.
    RegionNotFound,
    ModelNotFound,
    /// The request lacks the token that its route asks for.
    AccessDenied,
    /// No repository has the model that is to be loaded: INTERNAL in Triton.
    NotInRepository,
    /// It is on its way.
    ModelNotReady,
    /// It is being loaded or unloaded, and takes no other order meanwhile: INTERNAL in Triton.
    ModelBusy,
    /// It has failed to load and will not come by waiting.
    ModelUnavailable,
    /// What the order to load it hears.
    LoadFailed,
    Overloaded,
    DeadlineExceeded,
    EngineFailed,
    Unsupported,
    /// Models are not loaded and unloaded on demand: UNAVAILABLE in Triton.
    ControlDisabled,
    /// The log has no such form: UNAVAILABLE in Triton.
    UnknownLogFormat,
    ShuttingDown,
    Cancelled,
    /// What a model itself says, by the codes of `TritonError`.
    UnknownError,
    AlreadyExists,
    /// The server at the other end went away, as its client sees it.
    ConnectionLost,
    ConfigInvalid,
    /// The configuration of a model that is to be loaded is wrong: INTERNAL in Triton.
    UnloadableConfig,
    Internal,
}

/// The gRPC status codes that the table uses, by their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GrpcCode {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    NotFound = 5,
    AlreadyExists = 6,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

/// The `reason` label of the failure counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureReason {
    Rejected,
    Canceled,
    Backend,
    Other,
}

struct Row {
    name: &'static str,
    http: u16,
    openai: u16,
    grpc: GrpcCode,
    retryable: bool,
    reason: FailureReason,
}

impl ErrorKind {
    pub const ALL: [Self; 24] = [
        Self::InvalidInput,
        Self::UnreadableInput,
        Self::RegionNotFound,
        Self::ModelNotFound,
        Self::AccessDenied,
        Self::NotInRepository,
        Self::ModelNotReady,
        Self::ModelBusy,
        Self::ModelUnavailable,
        Self::LoadFailed,
        Self::Overloaded,
        Self::DeadlineExceeded,
        Self::EngineFailed,
        Self::Unsupported,
        Self::ControlDisabled,
        Self::UnknownLogFormat,
        Self::ShuttingDown,
        Self::Cancelled,
        Self::UnknownError,
        Self::AlreadyExists,
        Self::ConnectionLost,
        Self::ConfigInvalid,
        Self::UnloadableConfig,
        Self::Internal,
    ];

    #[rustfmt::skip]
    const fn row(self) -> Row {
        use FailureReason::{Backend, Canceled, Other, Rejected};
        use GrpcCode as G;
        const fn row(name: &'static str, http: u16, openai: u16, grpc: GrpcCode, retryable: bool, reason: FailureReason) -> Row {
            Row { name, http, openai, grpc, retryable, reason }
        }
        match self {
            Self::InvalidInput     => row("invalid_input",     400, 400, G::InvalidArgument, false, Other),
            Self::UnreadableInput  => row("invalid_input",     500, 400, G::Internal,        false, Other),
            Self::RegionNotFound   => row("invalid_input",     404, 404, G::NotFound,        false, Other),
            Self::ModelNotFound    => row("model_not_found",   404, 404, G::NotFound,        false, Other),
            Self::AccessDenied     => row("access_denied",     403, 403, G::Unavailable,     false, Other),
            Self::NotInRepository  => row("model_not_found",   500, 404, G::Internal,        false, Other),
            Self::ModelNotReady    => row("model_not_ready",   503, 503, G::Unavailable,     true,  Other),
            Self::ModelBusy        => row("model_not_ready",   500, 503, G::Internal,        false, Other),
            Self::ModelUnavailable => row("model_unavailable", 503, 503, G::Unavailable,     false, Other),
            Self::LoadFailed       => row("model_unavailable", 400, 503, G::InvalidArgument, false, Other),
            Self::Overloaded       => row("overloaded",        503, 429, G::Unavailable,     true,  Rejected),
            Self::DeadlineExceeded => row("deadline_exceeded", 503, 503, G::Unavailable,     false, Rejected),
            Self::EngineFailed     => row("engine_failed",     500, 500, G::Internal,        false, Backend),
            Self::Unsupported      => row("unsupported",       501, 400, G::Unimplemented,   false, Other),
            Self::ControlDisabled  => row("unsupported",       503, 503, G::Unavailable,     false, Other),
            Self::UnknownLogFormat => row("invalid_input",     503, 503, G::Unavailable,     false, Other),
            Self::ShuttingDown     => row("shutting_down",     503, 503, G::Unavailable,     true,  Rejected),
            Self::Cancelled        => row("cancelled",         400, 400, G::Cancelled,       false, Canceled),
            Self::UnknownError     => row("invalid_input",     400, 400, G::Unknown,         false, Other),
            Self::AlreadyExists    => row("invalid_input",     400, 400, G::AlreadyExists,   false, Other),
            Self::ConnectionLost   => row("connection_lost",   503, 503, G::Unavailable,     true,  Other),
            Self::ConfigInvalid    => row("config_invalid",    400, 400, G::InvalidArgument, false, Other),
            Self::UnloadableConfig => row("config_invalid",    500, 500, G::Internal,        false, Other),
            Self::Internal         => row("internal_error",    500, 500, G::Internal,        false, Other),
        }
    }

    /// The name under which Python finds its exception class.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The first kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind of that name which a client sees as `status`, else the first of that name.
    pub fn find(name: &str, status: u16) -> Option<Self> {
        let exact = Self::ALL.into_iter().find(|kind| kind.name() == name && kind.http_status() == status);
        exact.or_else(|| Self::named(name))
    }

    pub const fn http_status(self) -> u16 {
        self.row().http
    }

    /// On routes of OpenAI's API, whose clients ask again where a server says that it is at fault.
    pub const fn openai_status(self) -> u16 {
        self.row().openai
    }

    pub const fn grpc_code(self) -> GrpcCode {
        self.row().grpc
    }

    pub const fn retryable(self) -> bool {
        self.row().retryable
    }

    pub const fn failure_reason(self) -> FailureReason {
        self.row().reason
    }
}

impl FailureReason {
    pub const ALL: [Self; 4] = [Self::Rejected, Self::Canceled, Self::Backend, Self::Other];

    pub const fn label(self) -> &'static str {
        match self {
            Self::Rejected => "REJECTED",
            Self::Canceled => "CANCELED",
            Self::Backend => "BACKEND",
            Self::Other => "OTHER",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    pub message: Cow<'static, str>,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: shortened(message.into()) }
    }

    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// The same error, with the id of the request that met it in front, as Triton writes it.
    #[must_use]
    pub fn of_request(&self, id: &str) -> Self {
        let id = if id.is_empty() { "<id_unknown>" } else { id };
        Self::new(self.kind, format!("[request id: {id}] {}", self.message))
    }

    /// Nobody waits for the answer any more.
    pub fn expired() -> Self {
        Self::new(ErrorKind::DeadlineExceeded, "Request timeout expired")
    }

    pub(crate) fn overloaded() -> Self {
        Self::new(ErrorKind::Overloaded, "Exceeds maximum queue size")
    }

    pub(crate) fn too_deep() -> Self {
        Self::invalid("too many models ask one another in a row: one of them seems to ask itself in the end")
    }

    /// Triton answers a cancelled request with an empty text.
    pub fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, "")
    }

    pub(crate) fn shutting_down() -> Self {
        Self::new(
            ErrorKind::ShuttingDown,
            "Server is stopping, scheduler for model has stopped accepting new inference requests",
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
