"""How many threads the libraries of a model start: variables that they read when they are imported"""

from ..environment import not_set

__all__ = ["thread_variables"]

_OPENMP = "OMP_NUM_THREADS"
_WHERE_OPENMP_SAYS_NOTHING = (
    "BLIS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)
_OTHERS = (
    "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)


def thread_variables(threads: int) -> list[tuple[str, str]]:
    """Those that the environment of the server leaves open"""
    openmp = not_set((_OPENMP,))
    # what is said for OpenMP alone is meant for them, too
    names = [*openmp, *(not_set(_WHERE_OPENMP_SAYS_NOTHING) if openmp else ()), *not_set(_OTHERS)]
    return [(name, str(threads)) for name in names]
