"""python -m kushi: the same as the command `kushi`"""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
