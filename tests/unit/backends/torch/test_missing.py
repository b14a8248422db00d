import sys

import pytest

from runners.backends import backend
from runners.errors import Unsupported


def test_where_pytorch_is_missing_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "runners.backends.torch.backend", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(Unsupported, match=r"'pytorch' cannot be loaded: .*torch.*: pip install 'kushi\[torch\]'"):
        backend("pytorch")
