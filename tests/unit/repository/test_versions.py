import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.repository.versions import missing, served
from tests.unit.text import config


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", (9,)),
        ("version_policy { latest { } }", (9,)),
        ("version_policy { latest { num_versions: 2 } }", (5, 9)),
        ("version_policy { latest { num_versions: 8 } }", (1, 5, 9)),
        ("version_policy { all { } }", (1, 5, 9)),
        ("version_policy { }", (1, 5, 9)),
        ("version_policy { specific { versions: [ 5, 1, 7, 5 ] } }", (1, 5)),
        ("version_policy { specific { } }", ()),
    ],
)
def test_policy_chooses_versions(policy: str, expected: tuple[int, ...]) -> None:
    assert served(config(policy), [9, 1, 5]) == expected


def test_no_version_on_disk_is_none_served() -> None:
    assert served(config(""), []) == ()
    assert served(config("version_policy { all { } }"), []) == ()


def test_versions_that_are_asked_for_and_missing_are_told() -> None:
    assert missing(config("version_policy { specific { versions: [ 5, 7 ] } }"), [5]) == (7,)
    assert missing(config("version_policy { all { } }"), [5]) == ()


@given(st.sets(st.integers(1, 2**63 - 1)), st.integers(1, 20))
def test_latest_are_the_highest_in_ascending_order(versions: set[int], count: int) -> None:
    chosen = served(config(f"version_policy {{ latest {{ num_versions: {count} }} }}"), versions)
    assert list(chosen) == sorted(versions)[-count:]
