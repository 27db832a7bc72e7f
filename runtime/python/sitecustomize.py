# Lockstep's way into Python: site.py imports this at every start of an interpreter. It must be
# as if it were not there: the sitecustomize that would have been found without it runs, this
# directory leaves sys.path again, nothing is imported, and only `import torch` and `import
# lockstep` do any work. Outside `lockstep run` only the first of these happens. It is compiled
# at each start where its directory cannot be written, so what can wait is in _lockstep/finder.py.
import os
import sys
from _frozen_importlib_external import PathFinder  # importlib.machinery would cost more than all the rest.

_here = os.path.dirname(__file__)
_path = [entry for entry in sys.path if entry != _here]
_behind = [entry for entry in sys.path[sys.path.index(_here) + 1 if _here in sys.path else 0:] if entry != _here]


class _Finder:
    def __init__(self, *names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name not in self.names:
            return None
        if "lockstep" in name:
            return PathFinder.find_spec(name, [_here])
        from _lockstep.finder import spec_of

        return spec_of(self, name, path, target)


# Of several copies of Lockstep on the path the first one does it all.
_first = not any(type(finder).__module__ == "sitecustomize" and "_lockstep" in getattr(finder, "names", ())
                 for finder in sys.meta_path)
if _first and os.environ.get("LOCKSTEP_SEGMENT") and "liblockstep.so" in os.environ.get("LD_PRELOAD", ""):
    sys.path[:] = _path
    sys.meta_path.insert(0, _Finder("torch", "torch._dynamo", "torch.distributed._functional_collectives", "_lockstep"))
    sys.meta_path.append(_Finder("lockstep"))  # Last: a module of the user's own wins.

# Only behind this directory, before which there is none: another copy of Lockstep there asks in the same way.
_next = PathFinder.find_spec("sitecustomize", _behind)
if _next is None:
    # site.py takes this for "there is none", and no trace of this module stays in sys.modules.
    raise ImportError("no other sitecustomize", name="sitecustomize")
from _frozen_importlib import module_from_spec  # noqa: E402

sys.modules["sitecustomize"] = _module = module_from_spec(_next)
_next.loader.exec_module(_module)  # What it raises is site.py's to report, as without us.
