"""What a service depends on, so that BentoML starts and supervises it, and what an instance has there in its place"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import bentoml

__all__ = ["OwnDependency"]


class OwnDependency(bentoml.Dependency[Any]):
    """A member of a service's class, beside those of `bentoml.depends`. BentoML starts `on` where there is no `url`"""

    _resolved: Any
    stated_url: str | None
    """That of the code, which BentoML's constructor is given"""

    def __attrs_post_init__(self) -> None:
        """BentoML wants to know here and now where the other one is; ours may say it when the service starts"""

    @property
    def url(self) -> str | None:
        """Where the other one is, if it is not for BentoML to start it"""
        return self.find_url()

    @url.setter
    def url(self, url: str | None) -> None:
        self.stated_url = url

    @property
    def opened(self) -> Any:  # noqa: ANN401 - what open() gave
        """What instances have; None before the first one has asked for it"""
        return self._resolved

    def get(self, **_: Any) -> Any:  # noqa: ANN401 - what is injected here, and what open() gives
        return self.open() if self._resolved is None else self._resolved

    def forget(self) -> Any:  # noqa: ANN401 - as above
        """What instances had so far; the next one has another"""
        opened, self._resolved = self._resolved, None
        return opened

    @abstractmethod
    def find_url(self) -> str | None: ...

    @abstractmethod
    def open(self) -> object:
        """Called once for all instances of a process. BentoML calls `close` at the end, which must be awaited"""
