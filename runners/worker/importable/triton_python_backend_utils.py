"""For processes that a model starts, as those of a pool: what the model itself has under this name"""

from importlib import import_module

import_module("kushi_worker.pb_utils").install()
