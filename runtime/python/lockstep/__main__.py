"""python -m lockstep train.py ...: the script under `lockstep run`; python -m lockstep COMMAND ...: any other command.

`program` is the console script `lockstep` of a wheel.
"""

import os
import sys
from typing import List, NoReturn

from . import _program


def _become(arguments: List[str]) -> NoReturn:
    path = _program.find()
    if not path:
        sys.stderr.write("error: the program lockstep was not found\n  %s\n  try: pip install --force-reinstall lockstep-profiler\n"
                         % os.path.dirname(os.path.abspath(__file__)))
        sys.exit(127)
    sys.stdout.flush()
    os.execv(path, ["lockstep", *arguments])


def program() -> NoReturn:
    _become(sys.argv[1:])


if __name__ == "__main__":
    _become(_program.words(sys.argv[1:], sys.executable))
