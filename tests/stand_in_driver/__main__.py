import sys
from pathlib import Path

from tests.stand_in_driver import make_cuda

make_cuda(Path(sys.argv[1]))
