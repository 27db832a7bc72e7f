"""Has the hooks installed right after torch's own code ran."""

import sys
from _thread import get_ident

_AFTER = {"torch": "install", "torch._dynamo": "leave_frames_alone",
          "torch.distributed._functional_collectives": "functional_collectives"}


class _Loader:
    """Wraps a module's loader until the module has run."""

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
            from . import torch_hooks

            getattr(torch_hooks, self._after)(module)
        except Exception as error:  # The job goes on without hooks, and says so.
            _say(module.__name__, error)


def _say(name, error):
    try:
        if name == "torch":
            from . import probe

            probe.fact("torch_unhooked", what="the hooks failed: %s: %s" % (type(error).__name__, error))
        else:
            from . import state

            state.missed("torch.compile" if name == "torch._dynamo" else name, error)
    except Exception:  # Not even that much of us works here: the probe says at the end that there were no hooks.
        pass


_looking = set()


def spec_of(own, name, path, target):
    """What the other finders on sys.meta_path find. Others ask all finders in the same way: wrapt's, which several
    tracers of applications use, and another copy of this one. They get no answer from who asked them."""
    key = id(own), get_ident(), name
    if key in _looking:
        return None
    _looking.add(key)
    try:
        return _look(own, name, path, target)
    finally:
        _looking.discard(key)


def _look(own, name, path, target):
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        if finder is own or find is None:
            continue
        spec = find(name, path, target)
        if spec is not None:
            if hasattr(spec.loader, "exec_module") and not isinstance(spec.loader, _Loader):
                spec.loader = _Loader(spec.loader, _AFTER[name])
            return spec
    return None


def forget(name):
    """No need to wait for this module any more."""
    for finder in sys.meta_path:
        names = getattr(finder, "names", None)
        if type(finder).__module__ == "sitecustomize" and isinstance(names, tuple):
            finder.names = tuple(one for one in names if one != name)
