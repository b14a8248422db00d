"""The flags of tritonserver that this version does not have: each is refused by its name, unless it is switched off"""

from collections.abc import Mapping

__all__ = ["ABSENT", "INSTEAD"]

_FALSE = frozenset({"false", "off", "0"})
_ZERO = frozenset({"0"})

# flag → the values that ask for nothing that is missing
ABSENT: Mapping[str, frozenset[str]] = {
    "allow-sagemaker": _FALSE,
    "allow-vertex-ai": _FALSE,
    "buffer-manager-thread-count": _ZERO,
    "enable-peer-access": _FALSE,
    "model-namespacing": _FALSE,
    "response-cache-byte-size": _ZERO,
    "strict-model-config": _FALSE,
    **dict.fromkeys(
        (
            "cache-config",
            "cache-directory",
            "cuda-virtual-address-size",
            "grpc-infer-allocation-pool-size",
            "grpc-infer-thread-count",
            "grpc-max-response-pool-size",
            "host-policy",
            "min-supported-compute-capability",
            "repoagent-directory",
            "sagemaker-port",
            "sagemaker-safe-port-range",
            "sagemaker-thread-count",
            "vertex-ai-default-model",
            "vertex-ai-port",
            "vertex-ai-thread-count",
        ),
        frozenset[str](),
    ),
}

# what to use in the place of one
INSTEAD: Mapping[str, str] = {
    "host-policy": "the parameter 'kushi.cores' of a model says on which cores its instances run",
}
