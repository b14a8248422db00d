"""The parameters of models that take texts"""

__all__ = ["ACTIVATION", "BATCH_TOKENS", "MAX_TOKENS", "MODE", "POOLING", "TEXT_PARAMETERS"]

ACTIVATION, BATCH_TOKENS = "kushi.activation", "kushi.batch_tokens"
MAX_TOKENS, MODE, POOLING = "kushi.max_tokens", "kushi.texts", "kushi.pooling"
TEXT_PARAMETERS = (ACTIVATION, BATCH_TOKENS, MAX_TOKENS, MODE, POOLING)
