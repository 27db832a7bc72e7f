"""Process groups of torch.distributed whose works the probe observes (comms/c10d): their numbers.

A work is seen where PyTorch's C++ begins it, and that does not say what Python calls the group that it is on. So each
group is told to the probe when it is made, which saw what C++ made for it, and each call in Python which group it is on.
"""

import ctypes

from . import identity, probe, state

UNKNOWN = 0xFFFFFFFF  # A group that the library was not given.
OBSERVED = "gloo"

_numbers = {}     # By name: a group itself is not kept alive.
_observes = None  # Whether works are seen, once that was tried.


@state.aside
def observes(torch):
    """Whether works of gloo are recorded in this process."""
    global _observes
    if _observes is None:
        _observes = False
        try:
            if not probe.torch_observe():
                raise RuntimeError("this PyTorch has no observers of the kind that is known")
            before = probe.torch_seen()
            handle = torch.ops.profiler._record_function_enter_new("lockstep", None)
            torch.ops.profiler._record_function_exit._RecordFunction(handle)
            if probe.torch_seen() == before:
                raise RuntimeError("PyTorch does not call observers")
            _observes = True
        except Exception as error:
            state.missed("works of gloo", error)
    return _observes


def _name(dist, group):
    name = getattr(group, "group_name", None)
    return str(name) if name is not None else str(dist.distributed_c10d._pg_names[group])  # 1.13


def _ranks(dist, group):
    if hasattr(dist, "get_process_group_ranks"):
        return list(dist.get_process_group_ranks(group))
    members = dist.distributed_c10d._pg_group_ranks[group]  # 1.13: world rank -> rank in the group
    return sorted(members, key=members.get)


@state.aside
def made(dist, group):
    """A group of which this process is a member."""
    group = group if group is not None else dist.group.WORLD
    if _name(dist, group) in _numbers:  # It was there already (functional collectives ask by ranks).
        return
    ranks = _ranks(dist, group)
    number = probe.torch_group((_name(dist, group) + "@" + identity.place).encode("utf-8", "replace"), (ctypes.c_int * len(ranks))(*ranks),
                               len(ranks), dist.get_rank(group))
    _numbers[_name(dist, group)] = number, ranks[0]


@state.aside
def gone(dist, group):
    """Before it is destroyed; the default group takes all with it."""
    if group is None or group is dist.group.WORLD:
        names = list(_numbers)
    else:
        names = [_name(dist, group)]
    for name in names:
        number, _ = _numbers.pop(name, (0, 0))
        if number:
            probe.torch_group_gone(number)


@state.aside
def number_of(dist, group):
    """(number, world rank of its first member); UNKNOWN and -1 if it was not passed on."""
    try:
        return _numbers[_name(dist, group if group is not None else dist.group.WORLD)]
    except Exception:
        return UNKNOWN, -1
