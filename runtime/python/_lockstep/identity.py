"""Which rank of which world this process is, as init_process_group made it.

Nothing else knows it everywhere: ranks of torch.multiprocessing.spawn, of init_method="tcp://..." and of launchers that
start the other ranks themselves have no variables, or those of somebody else. What the communication itself uses is
said to the probe (lockstep_hook_joined), which keeps the largest world; trace/decode/identity.h decides.
"""

import inspect
import os
import sys

from . import probe, state


def wrap(torch):
    dist = torch.distributed
    if not dist.is_available():
        return
    original = dist.distributed_c10d.init_process_group
    parameters = list(inspect.signature(original).parameters)

    @state.stands_for(original)
    def init_process_group(*args, **kwargs):
        begin = probe.ticks()
        where = _where(dict(zip(parameters, args), **kwargs))  # Before: PyTorch takes torchrun's variables as they are.
        made = original(*args, **kwargs)
        _joined(dist, begin, where)
        return made

    # Modules that imported it by name (device_mesh) call it too.
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed") and vars(module).get("init_process_group") is original:
            module.init_process_group = init_process_group


def _where(given):
    """The place at which the ranks meet, "" unknown: not the same string on each rank need be the same place."""
    try:
        if given.get("store") is not None:
            return ""
        method = given.get("init_method") or "env://"
        if str(method).startswith("env://"):
            return "tcp://%s:%s" % (os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", ""))
        return str(method).partition("?")[0]
    except Exception:  # An argument of a kind that PyTorch refuses as well.
        return ""


@state.aside
def _joined(dist, begin, where):
    try:
        probe.joined(dist.get_rank(), dist.get_world_size(), begin, where.encode("utf-8", "replace"))
    except Exception as error:
        state.missed("the rank that init_process_group gave", error)
