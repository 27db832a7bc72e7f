"""Where the installed programs are, and which version this is."""

import os
import shutil
from typing import List

_HERE = os.path.dirname(os.path.abspath(__file__))
# A wheel has them in the package; an installation (PREFIX/lib/lockstep/python/lockstep) and a build tree
# (BUILD/python/lockstep) have the package near them. Debian's directory of libraries is one level deeper.
_PLACES = ("bin/lockstep", "../../lockstep", "../../../../bin/lockstep", "../../../../../bin/lockstep")


def find() -> str:
    """Path of the program `lockstep`; "" if there is none."""
    for place in _PLACES:
        path = os.path.normpath(os.path.join(_HERE, place))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return shutil.which("lockstep") or ""


def version() -> str:
    """As `lockstep --version`; "unknown" where there is no program to ask."""
    try:
        from importlib.metadata import files
        from importlib.metadata import version as installed

        # Another distribution's version is not ours: only if it is this very package.
        for file in files("lockstep-profiler") or []:
            if str(file) == "lockstep/__init__.py" and os.path.samefile(str(file.locate()), os.path.join(_HERE, "__init__.py")):
                return installed("lockstep-profiler")
    except Exception:  # Not installed by pip, or not this copy.
        pass
    try:
        import subprocess

        done = subprocess.run([find(), "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20)
        return done.stdout.decode().strip() or "unknown"
    except Exception:
        return "unknown"


def words(arguments: List[str], python: str) -> List[str]:
    """What `python -m lockstep ARGUMENTS` runs, without the program itself.

    A script or `-m MODULE`, with options of `lockstep run` in front, is run by this Python under Lockstep; anything else
    is a command of `lockstep`.
    """
    for at, word in enumerate(arguments):
        if at == 0 and not word.startswith("-") and not word.endswith(".py"):
            break  # A command.
        if word == "--":
            break
        if word == "-m" or word.endswith(".py"):
            return ["run", *arguments[:at], "--", python, *arguments[at:]]
    return arguments
