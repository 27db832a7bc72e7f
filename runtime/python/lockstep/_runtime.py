"""The probe's functions where this process is recorded, else nothing.

`probe` is None outside of `lockstep run`: then the module does nothing and has imported nothing. What is missing or
broken here is never the program's problem. `state` comes with it: state.compiling() is True where torch.compile traces
through a call. Nothing of ours then gets into the graph, and no graph breaks because of it.
"""

import os
import sys
from typing import Any


def _hooks_beside_the_probe() -> None:
    """_lockstep of the Lockstep that records this process, for an interpreter that looked at no PYTHONPATH (-I, -E)."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    for library in os.environ.get("LD_PRELOAD", "").replace(":", " ").split():
        if os.path.basename(library) == "liblockstep.so":
            spec = PathFinder.find_spec("_lockstep", [os.path.join(os.path.dirname(library), "python")])
            if spec is not None and spec.loader is not None:
                sys.modules["_lockstep"] = module = module_from_spec(spec)
                spec.loader.exec_module(module)
                return


def _load() -> Any:
    if not os.environ.get("LOCKSTEP_SEGMENT"):
        return None, None
    try:
        try:
            import _lockstep  # noqa: F401
        except ImportError:
            _hooks_beside_the_probe()
        from _lockstep import probe, state
    except Exception:
        return None, None
    return (probe, state) if probe.active else (None, None)


probe, state = _load()


def window_kind() -> int:
    """What `lockstep run` was asked to record, as WindowKind in core/window.h; -1 not recorded, or not known."""
    ask = getattr(probe, "window_kind", None)
    return int(ask()) if ask is not None else -1


def say(text: str) -> None:
    """One line on standard error, of one rank of the job."""
    ranks = [os.environ[name] for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID") if name in os.environ]
    if not ranks or ranks[0] == "0":
        try:
            print("lockstep: " + text, file=sys.stderr, flush=True)
        except Exception:  # No standard error.
            pass
