import pytest

OF_REAL_TIME = pytest.mark.clock
