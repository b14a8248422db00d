import pytest

# its assertions are those of the tests
pytest.register_assert_rewrite("tests.peer.pair")
