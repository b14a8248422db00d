"""The standard repository: one model for each behaviour that the protocol tests look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.models import (
    add_sub,
    cast,
    config,
    fixed_identity,
    identity,
    nonzero,
    optional_inputs,
    plus_constant,
    scalar,
    write,
    write_add_sub,
    write_gated,
    write_gather,
    write_identities,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["standard_repository", "write_shapes", "write_versions"]


def write_halves(repository: Path) -> None:
    """``fp32_to_fp16`` and ``fp32_to_bf16``: numbers that JSON has, made into such that it has not."""
    for datatype in ("FP16", "BF16"):
        name = f"fp32_to_{datatype.lower()}"
        text = config(name, [("INPUT0", "FP32", [-1])], [("OUTPUT0", datatype, [-1])], max_batch_size=8)
        write(repository, name, cast("FP32", datatype), text)


def write_versions(repository: Path) -> None:
    """Three models of versions 1, 2, 3 (OUTPUT0 = INPUT0 + version) under three policies."""
    policies = {
        "specific_versions": "version_policy { specific { versions: [ 1, 3 ] } }",
        "latest_versions": "version_policy { latest { num_versions: 2 } }",
        "all_versions": "version_policy { all { } }",
    }
    for name, policy in policies.items():
        text = config(
            name,
            [("INPUT0", "INT32", [1])],
            [("OUTPUT0", "INT32", [1])],
            max_batch_size=4,
            extra=policy,
        )
        write(repository, name, {version: plus_constant(version) for version in (1, 2, 3)}, text)


def write_shapes(repository: Path) -> None:
    """Models whose configuration and file differ in shape: rank 0, reshape, none batched."""
    flat = config(
        "add_sub_flat",
        [("INPUT0", "INT32", [16]), ("INPUT1", "INT32", [16])],
        [("OUTPUT0", "INT32", [16]), ("OUTPUT1", "INT32", [16])],
        max_batch_size=0,
    )
    write(repository, "add_sub_flat", add_sub([16]), flat)

    batched = config(
        "scalar_batched",
        [("INPUT0", "FP32", [1])],
        [("OUTPUT0", "FP32", [1])],
        max_batch_size=8,
        fields={"INPUT0": "reshape { shape: [ ] }", "OUTPUT0": "reshape { shape: [ ] }"},
    )
    write(repository, "scalar_batched", scalar(("batch",)), batched)

    reshaped = config(
        "reshaped",
        [("INPUT0", "INT32", [2, 8])],
        [("OUTPUT0", "INT32", [4, 4])],
        max_batch_size=8,
        fields={"INPUT0": "reshape { shape: [ 16 ] }", "OUTPUT0": "reshape { shape: [ 16 ] }"},
    )
    write(repository, "reshaped", identity("INT32", ["batch", 16]), reshaped)

    image = config(
        "image",
        [("INPUT0", "FP32", [3, -1, -1])],
        [("OUTPUT0", "FP32", [3, -1, -1])],
        max_batch_size=4,
    )
    write(repository, "image", identity("FP32", ["batch", 3, "height", "width"]), image)

    found = config("nonzero", [("INPUT0", "INT32", [-1])], [("OUTPUT0", "INT64", [1, -1])], max_batch_size=0)
    write(repository, "nonzero", nonzero(), found)

    string = config("string", [("INPUT0", "BYTES", [1])], [("OUTPUT0", "BYTES", [1])], max_batch_size=8)
    write(repository, "string", identity("BYTES", ["batch", 1]), string)

    optional = config(
        "optional",
        [("INPUT0", "INT32", [1]), ("INPUT1", "INT32", [1]), ("INPUT2", "INT32", [1])],
        [("OUTPUT0", "INT32", [1])],
        max_batch_size=0,
        fields={"INPUT1": "optional: true", "INPUT2": "optional: true"},
    )
    write(repository, "optional", optional_inputs(), optional)


def write_completed(repository: Path) -> None:
    """Models without a ``config.pbtxt``: the server completes it from the file."""
    write(repository, "completed", add_sub(["batch", 16], "FP32"))
    write(repository, "completed_fixed", fixed_identity("FP32", [2, 3]))
    write(repository, "scalar", scalar())


def standard_repository(root: Path) -> Path:
    """The repository that the shared server serves."""
    write_add_sub(root)
    write_identities(root)
    write_halves(root)
    write_shapes(root)
    write_versions(root)
    write_completed(root)
    write_gather(root)
    write_gated(root)
    return root
