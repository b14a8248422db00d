"""Which requests ask for a token: what --http-restricted-api and --grpc-restricted-protocol say"""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import not_shown

__all__ = ["RESTRICTION", "Restriction", "parse_restriction"]

RESTRICTION = "API,…:HEADER=VALUE"


@dataclass(frozen=True)
class Restriction:
    """
    Requests for `apis` must have `header` with this `value`. Over gRPC the name of the header begins with
    triton-grpc-protocol-.

    apis: of health, metadata, inference, shared-memory, model-config, model-repository, statistics, trace, logging.
    """

    apis: tuple[str, ...]
    header: str
    value: str = field(repr=False)


def parse_restriction(text: str, source: str) -> Restriction:
    """`text` as tritonserver takes it; it may hold a secret, so that no message shows it"""
    apis, colon, token = text.partition(":")
    header, equals, value = token.partition("=")
    if not (apis and colon and header and equals and value):
        raise not_shown(source, RESTRICTION)
    return Restriction(tuple(apis.split(",")), header, value)
