"""The parameters of generative models"""

__all__ = ["CACHE_BYTES", "CONTEXT", "DETERMINISTIC", "PARAMETERS", "SEQUENCES", "STEP", "THREADS"]

CACHE_BYTES, CONTEXT, DETERMINISTIC = "kushi.kv_cache_bytes", "kushi.max_tokens", "kushi.deterministic"
SEQUENCES, STEP, THREADS = "kushi.max_sequences", "kushi.step_tokens", "INFERENCE_NUM_THREADS"
PARAMETERS = (THREADS, DETERMINISTIC, CACHE_BYTES, SEQUENCES, CONTEXT, STEP)
