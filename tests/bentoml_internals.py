"""What tests take from inside BentoML, to stand in its place or to compare with it; no other file of theirs does."""

from __future__ import annotations

from _bentoml_impl.docker import DEFAULT_BENTO_ENVS
from _bentoml_impl.serde import ALL_SERDE, MultipartSerde, Payload, PickleSerde, Serde
from _bentoml_sdk.io_models import IODescriptor
from _bentoml_sdk.service import set_current_service
from bentoml._internal.cloud.schemas.modelschemas import DeploymentServiceConfig, DeploymentTargetHPAConf, EnvItemSchema
from bentoml._internal.cloud.schemas.schemasv2 import CreateDeploymentSchema
from bentoml._internal.configuration.containers import BentoMLContainer
from bentoml._internal.models import ModelStore
from bentoml._internal.utils.circus import create_standalone_arbiter
from bentoml.serving import create_watcher
from circus.arbiter import Arbiter  # type: ignore[import-untyped] # it has no types

__all__ = [
    "ADDRESSES",
    "ALL_SERDE",
    "ARGUMENTS",
    "DEFAULT_BENTO_ENVS",
    "MODEL_STORE",
    "PORT",
    "TRACER_PROVIDER",
    "Arbiter",
    "CreateDeploymentSchema",
    "DeploymentServiceConfig",
    "DeploymentTargetHPAConf",
    "EnvItemSchema",
    "IODescriptor",
    "ModelStore",
    "MultipartSerde",
    "Payload",
    "PickleSerde",
    "Serde",
    "create_standalone_arbiter",
    "create_watcher",
    "set_current_service",
]

ADDRESSES = BentoMLContainer.remote_runner_mapping
"""Those of the services, as `bentoml serve` tells its workers"""
ARGUMENTS = BentoMLContainer.bento_arguments
"""Those of `bentoml build --arg`"""
MODEL_STORE = BentoMLContainer.model_store
PORT = BentoMLContainer.http.port
TRACER_PROVIDER = BentoMLContainer.tracer_provider
