"""The parameters of models that take texts"""

__all__ = [
    "ACTIVATION",
    "BATCH_TOKENS",
    "DIMENSIONS",
    "MAX_TOKENS",
    "MODE",
    "POOLING",
    "PROMPT",
    "PROMPT_NAME",
    "TEXT_PARAMETERS",
]

ACTIVATION, BATCH_TOKENS, DIMENSIONS = "kushi.activation", "kushi.batch_tokens", "kushi.dimensions"
MAX_TOKENS, MODE, POOLING = "kushi.max_tokens", "kushi.texts", "kushi.pooling"
PROMPT, PROMPT_NAME = "kushi.prompt", "kushi.prompt_name"
TEXT_PARAMETERS = (ACTIVATION, BATCH_TOKENS, DIMENSIONS, MAX_TOKENS, MODE, POOLING, PROMPT, PROMPT_NAME)
