import kushi_native
import pytest

from runners.errors import factories


@pytest.fixture(autouse=True)
def _native_errors_are_ours() -> None:
    """What making an Engine does"""
    kushi_native.register_errors(factories())
