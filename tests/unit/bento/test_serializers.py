"""No pickle is read or written, and forms are refused where they cannot be read."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from bentoml.exceptions import BentoMLException
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser

from runners.bento.web.serializers import REFUSAL, is_pickle
from tests.bentoml_internals import Payload, PickleSerde, Serde
from tests.serving import ROOT

if TYPE_CHECKING:
    pass

KIND = "application/vnd.bentoml+pickle"


# in a process of its own: whatever made a service in this one has replaced them for good
BENTOMLS_OWN = """
from tests.bentoml_internals import ALL_SERDE, MultipartSerde, PickleSerde
print(*[kind for kind, serde in ALL_SERDE.items() if issubclass(serde, PickleSerde)])
print(*[kind for kind, serde in ALL_SERDE.items() if issubclass(serde, MultipartSerde)])
"""


def test_bentoml_has_its_serializers_where_ours_takes_the_place_of_one() -> None:
    assert PickleSerde.media_type == KIND
    registered = subprocess.run(
        [sys.executable, "-c", BENTOMLS_OWN], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert registered.stdout.splitlines() == [KIND, "multipart/form-data application/x-www-form-urlencoded"]


def test_nothing_is_read_or_written_with_it(registry: dict[str, type[Serde]]) -> None:
    serde = registry[KIND]()
    payload = Payload((pickle.dumps(1),))
    for call in (serde.serialize_model, serde.deserialize_model, serde.serialize, serde.deserialize):
        refused: Any = call
        with pytest.raises(BentoMLException, match=REFUSAL) as caught:
            refused(payload, {})
        assert caught.value.error_code == 415

    async def parse() -> None:
        refused: Any = serde.parse_request
        await refused(payload, object)

    with pytest.raises(BentoMLException, match=REFUSAL):
        asyncio.run(parse())


def test_no_serializer_of_bentoml_reads_a_pickle(registry: dict[str, type[Serde]]) -> None:
    for serde in registry.values():
        assert not issubclass(serde, PickleSerde)


@pytest.mark.usefixtures("registry")
def test_malformed_forms_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(MultipartParseError):
        MultipartParser(b"boundary").write(b"nonsense")
    assert not caplog.records


@pytest.mark.parametrize("around", ["", " ", "\xa0", "\x85", "\t"])
def test_it_is_known_by_its_name_as_bentoml_strips_it(around: str) -> None:
    assert is_pickle(f"{around}{KIND.upper()}{around}; a=b".encode("latin-1"))
    assert not is_pickle(f"{around}application/json".encode("latin-1"))
