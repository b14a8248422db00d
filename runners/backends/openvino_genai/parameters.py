"""The parameters of generative models"""

__all__ = [
    "CACHE_BYTES",
    "CONTEXT",
    "DETERMINISTIC",
    "PARAMETERS",
    "SEQUENCES",
    "STEP",
    "STEP_SECONDS",
    "THREADS",
    "TOOL_CALLS",
]

CACHE_BYTES, CONTEXT, DETERMINISTIC = "kushi.kv_cache_bytes", "kushi.max_tokens", "kushi.deterministic"
SEQUENCES, STEP, THREADS = "kushi.max_sequences", "kushi.step_tokens", "INFERENCE_NUM_THREADS"
TOOL_CALLS, STEP_SECONDS = "kushi.tool_calls", "kushi.step_timeout"
PARAMETERS = (THREADS, DETERMINISTIC, CACHE_BYTES, SEQUENCES, CONTEXT, STEP, TOOL_CALLS, STEP_SECONDS)
