"""Which tests that need a GPU run."""

import pytest

from tests.accelerators import is_installed, reason_to_skip
from tests.gpu_machine import missing


@pytest.mark.parametrize(
    ("asked", "skips_missing", "reason"),
    [
        (False, False, "needs a GPU: --gpu"),
        (True, False, ""),
        (True, True, "needs away and gone, not installed here"),
    ],
)
def test_a_test_is_skipped_with_a_reason_or_runs(asked: bool, skips_missing: bool, reason: str) -> None:
    def installed(name: str) -> bool:
        return name == "here"

    packages = ["gone", "here", "away", "gone"]
    assert reason_to_skip(packages, asked=asked, skips_missing=skips_missing, installed=installed) == reason


def test_a_package_is_looked_for_by_the_name_that_it_is_installed_by() -> None:
    assert is_installed("pytest-timeout")
    assert not is_installed("no-such-package-of-anybody")


def test_what_cannot_be_imported_is_named_with_the_reason() -> None:
    assert list(missing(["json", "no_such_module"])) == ["no_such_module: No module named 'no_such_module'"]
