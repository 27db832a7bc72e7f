"""Which rank of which world this process is, as init_process_group made it.

Nothing else knows it everywhere: ranks of torch.multiprocessing.spawn, of init_method="tcp://..." and of launchers that
start the other ranks themselves have no variables, or those of somebody else. What the communication itself uses is
said to the probe (lockstep_hook_joined), which keeps the largest world; trace/decode/identity.h decides.
"""

import inspect
import os
import sys
from urllib.parse import urlparse

from . import meeting, probe, state


place = ""  # At which the ranks of the world met: worlds of the same ranks differ in it.


def wrap(torch):
    dist = torch.distributed
    if not dist.is_available():
        return
    original = dist.distributed_c10d.init_process_group
    parameters = list(inspect.signature(original).parameters)

    @state.stands_for(original)
    def init_process_group(*args, **kwargs):
        global place
        begin = probe.ticks()
        where = _where(dict(zip(parameters, args), **kwargs))  # Before: what PyTorch itself goes by.
        made = original(*args, **kwargs)
        place = where
        _joined(dist, begin, where)
        return made

    everywhere(original, init_process_group)


def everywhere(original, wrapped):
    """Modules of torch.distributed that imported it by name (device_mesh) call it too."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed") and vars(module).get(original.__name__) is original:
            setattr(module, original.__name__, wrapped)


def _where(given):
    """What all ranks call their meeting point, "" unknown: a port, as a host has several names; or a path."""
    try:
        if given.get("store") is not None:
            return ""
        method = str(given.get("init_method") or "env://")
        if method.startswith("env://"):
            return ":" + os.environ.get("MASTER_PORT", "")
        if method.startswith("tcp://"):
            return ":%s" % urlparse(method).port
        return method.partition("?")[0]
    except Exception:  # An argument of a kind that PyTorch refuses as well.
        return ""


@state.aside
def _joined(dist, begin, where):
    try:
        probe.joined(dist.get_rank(), dist.get_world_size(), begin, where.encode("utf-8", "replace"))
    except Exception as error:
        state.missed("the rank that init_process_group gave", error)
    try:
        meeting.meet(dist, dist.get_rank())
    except Exception as error:
        state.later("reference_not_told", why="%s: %s" % (type(error).__name__, error))
