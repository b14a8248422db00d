"""The flags of tritonserver that this version does not have: each is refused by its name, unless it is switched off"""

from collections.abc import Mapping

__all__ = ["ABSENT", "ABSENT_VALUES"]

_FALSE = frozenset({"false", "off", "0"})
_ZERO = frozenset({"0"})

# flag → the values that ask for nothing that is missing
ABSENT: Mapping[str, frozenset[str]] = {
    "allow-gpu-metrics": _FALSE,
    "allow-grpc": _FALSE,
    "allow-sagemaker": _FALSE,
    "allow-vertex-ai": _FALSE,
    "buffer-manager-thread-count": _ZERO,
    "enable-peer-access": _FALSE,
    "grpc-use-ssl": _FALSE,
    "grpc-use-ssl-mutual": _FALSE,
    "model-load-retry-count": _ZERO,
    "model-namespacing": _FALSE,
    "pinned-memory-pool-byte-size": _ZERO,
    "rate-limit": frozenset({"off"}),
    "repository-poll-secs": _ZERO,
    "response-cache-byte-size": _ZERO,
    "reuse-grpc-port": _FALSE,
    "strict-model-config": _FALSE,
    **dict.fromkeys(
        (
            "backend-directory",
            "cache-config",
            "cache-directory",
            "cuda-memory-pool-byte-size",
            "cuda-virtual-address-size",
            "grpc-address",
            "grpc-header-forward-pattern",
            "grpc-http2-max-ping-strikes",
            "grpc-http2-max-pings-without-data",
            "grpc-http2-min-recv-ping-interval-without-data",
            "grpc-infer-allocation-pool-size",
            "grpc-infer-response-compression-level",
            "grpc-infer-thread-count",
            "grpc-keepalive-permit-without-calls",
            "grpc-keepalive-time",
            "grpc-keepalive-timeout",
            "grpc-max-connection-age",
            "grpc-max-connection-age-grace",
            "grpc-max-response-pool-size",
            "grpc-port",
            "grpc-restricted-protocol",
            "grpc-root-cert",
            "grpc-server-cert",
            "grpc-server-key",
            "host-policy",
            "metrics-config",
            "min-supported-compute-capability",
            "model-config-name",
            "model-load-gpu-limit",
            "rate-limit-resource",
            "repoagent-directory",
            "sagemaker-port",
            "sagemaker-safe-port-range",
            "sagemaker-thread-count",
            "trace-config",
            "trace-count",
            "trace-file",
            "trace-level",
            "trace-log-frequency",
            "trace-rate",
            "vertex-ai-default-model",
            "vertex-ai-port",
            "vertex-ai-thread-count",
        ),
        frozenset[str](),
    ),
}

# values of tritonserver's that a flag does not take yet
ABSENT_VALUES: Mapping[str, tuple[str, ...]] = {"model-control-mode": ("poll",)}
