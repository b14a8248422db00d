"""What frames are about, by their numbers; those about slots are the channel's"""

from __future__ import annotations

__all__ = [
    "ANSWER",
    "ASK",
    "AUTO_COMPLETE",
    "CALL",
    "CALL_CANCEL",
    "CALL_RESPONSE",
    "CALL_TAKEN",
    "EXECUTE",
    "FAILED",
    "FINALIZE",
    "FINALIZED",
    "GRANT",
    "INITIALIZE",
    "IS_READY",
    "LOG",
    "METRIC",
    "READINESS",
    "READY",
    "RESPONSES",
    "RETURNED",
]

# from the server
INITIALIZE = 16
AUTO_COMPLETE = 17
EXECUTE = 18
FINALIZE = 19
# an answer to a request was taken, so there is room for another; or nobody waits any more
GRANT = 20
# to what was asked
ANSWER = 21
# of another model
CALL_RESPONSE = 22
# whether the model says that it is
IS_READY = 23

# from the worker
READY = 32
FAILED = 33
# answers to requests of a batch
RESPONSES = 34
# the same, and `execute` has returned
RETURNED = 35
LOG = 36
FINALIZED = 37
ASK = 38
# a request to another model
CALL = 39
CALL_CANCEL = 40
# an answer was taken, so there is room for another
CALL_TAKEN = 41
# a change of a metric, or that it is held no more; nobody answers
METRIC = 42
READINESS = 43
