"""
The settings of the server, each defined once, in groups: a file for each. From the definitions follow the flags of
`kushi serve`, the environment variables KUSHI_*, and the options that programs give to an engine. A flag wins over a
variable.
"""

from .buckets import BucketOptions
from .devices import DeviceOptions
from .engine import EngineOptions
from .grpc import GrpcDoors, GrpcOptions
from .http import HttpDoors, HttpOptions
from .local import LocalDoor
from .log import LogOptions
from .metrics import MetricsDoor, MetricsOptions
from .models import ALL_MODELS, ModelOptions
from .rate_limit import RateLimitOptions
from .server import Doors, ServerSettings
from .sources import SETTINGS, check_flags, flag_of, given_in_environment, read_server, read_settings
from .tls import ServerTls
from .trace import TraceOptions

__all__ = [
    "ALL_MODELS",
    "SETTINGS",
    "BucketOptions",
    "DeviceOptions",
    "Doors",
    "EngineOptions",
    "GrpcDoors",
    "GrpcOptions",
    "HttpDoors",
    "HttpOptions",
    "LocalDoor",
    "LogOptions",
    "MetricsDoor",
    "MetricsOptions",
    "ModelOptions",
    "RateLimitOptions",
    "ServerSettings",
    "ServerTls",
    "TraceOptions",
    "check_flags",
    "flag_of",
    "given_in_environment",
    "read_server",
    "read_settings",
]
