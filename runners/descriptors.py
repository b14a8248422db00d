"""How many files a process may open: each connection is one"""

import logging
import resource

__all__ = ["allow_connections"]

_LOG = logging.getLogger(__name__)
_SPARE = 1024


def allow_connections(most: int, kinds: int, setting: str) -> None:
    """Raises the soft limit as far as `kinds` times `most` connections may need it, and the system allows it"""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    wanted = kinds * most + _SPARE
    allowed = wanted if unlimited else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if not unlimited and hard < most + _SPARE:
        _LOG.warning("the system allows %d open files, fewer than %s=%d may need (ulimit -Hn)", hard, setting, most)
