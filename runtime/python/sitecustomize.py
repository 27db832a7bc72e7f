"""Lockstep's way into Python: site.py imports this module at every start of an interpreter.

It must be as if it were not there: the sitecustomize that would have been found without it
runs, this directory leaves sys.path again, nothing is imported, and only `import torch` or
`import lockstep` do any work. Outside `lockstep run` only the first of these happens.
"""

import os
import sys

import _frozen_importlib_external  # importlib.machinery would cost as much as all the rest.


class _Modules:
    """Last on sys.meta_path: our own modules, without a place on sys.path. A user's own `lockstep` wins."""

    def __init__(self, directory):
        self._directory = directory

    def find_spec(self, name, path=None, target=None):
        if path is None and (name == "_lockstep" or name == "lockstep"):
            return _frozen_importlib_external.PathFinder.find_spec(name, [self._directory])
        return None


class _Loader:
    """Runs a hook right after a module's own code, then is forgotten."""

    def __init__(self, loader, after):
        self._loader = loader
        self._after = after

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            from _lockstep import torch_hooks

            getattr(torch_hooks, self._after)(module)
        except Exception:  # The job goes on without hooks; the probe says at the end that it did.
            pass


class _Torch:
    """First on sys.meta_path: waits for torch."""

    _AFTER = {"torch": "install", "torch._dynamo": "leave_frames_alone"}

    def find_spec(self, name, path=None, target=None):
        after = self._AFTER.get(name)
        if after is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, after)
                return spec
        return None


def _start(directory):
    others = [entry for entry in sys.path if entry != directory]
    if os.environ.get("LOCKSTEP_SEGMENT") and "liblockstep.so" in os.environ.get("LD_PRELOAD", ""):
        sys.path[:] = others
        sys.meta_path.insert(0, _Torch())
        sys.meta_path.append(_Modules(directory))
    return _frozen_importlib_external.PathFinder.find_spec("sitecustomize", others)


_next = _start(os.path.dirname(__file__))
if _next is None:
    # site.py takes this for "there is none", and no trace of this module stays in sys.modules.
    raise ImportError("no other sitecustomize", name="sitecustomize")
_module = type(sys)("sitecustomize")
_module.__spec__ = _next
_module.__loader__ = _next.loader
_module.__file__ = _next.origin
if _next.cached is not None:
    _module.__cached__ = _next.cached
_module.__package__ = _next.parent
if _next.submodule_search_locations is not None:
    _module.__path__ = _next.submodule_search_locations
sys.modules["sitecustomize"] = _module
# What it raises is site.py's to report, as it would have been without us.
_next.loader.exec_module(_module)
