"""How much an unrecorded backend carried: it numbers its operations, whichever code requests them."""

import atexit
import weakref

from . import state

_uses = {}  # By name of such a backend.


class _Group:
    """What numbers the operations of a group's backend."""

    def __init__(self, group, device):
        self.group = weakref.ref(group)  # The part that serves a device is made anew for each who asks.
        self.device = device             # None: the group is its backend, as before 2.0.
        self.last = self.number()

    def number(self):
        """Of the last operation; None where that cannot be known any more."""
        try:
            group = self.group()
            backend = group if group is None or self.device is None else group._get_backend(self.device)
            return None if backend is None else int(backend._get_sequence_number_for_group())
        except Exception:
            return None

    def since(self):
        """Operations since `last`; None where that cannot be known."""
        now = self.number()
        return None if now is None or self.last is None else max(0, now - self.last)


class _Use:
    """How much of a backend's work falls into steps, by the numbers that its groups give their operations."""

    def __init__(self):
        self.groups = []
        self.uncounted = 0   # Groups that do not say.
        self.steps = self.used = self.operations = 0
        self.covered = self.covered_in_steps = 0
        self.said = None     # The figures that were reported last.

    def add(self, group):
        if group.last is None:
            self.uncounted += 1
        else:
            self.groups.append(group)

    def step(self):
        """A step, or what comes before the first one, has ended."""
        done = 0
        for group in self.groups[:]:
            some = group.since()
            if some is None:  # It was destroyed, so its last operations are not known.
                self.groups.remove(group)
                self.uncounted += 1
            else:
                done += some
                group.last += some
        return done


def _device_of(group, name):
    """Of 2.x a group has a backend for each kind of device: one that the named one serves."""
    part = getattr(group, "_get_backend", None)
    if part is None:
        return None
    import torch

    for device in ("cpu", "cuda"):
        try:
            if part(torch.device(device)).name().lower() == name:
                return torch.device(device)
        except Exception:
            continue
    return None


@state.aside
def count_group(dist, group, name):
    use = _uses.get(name)
    if use is None:
        use = _uses[name] = _Use()
        if len(_uses) == 1:
            state.each_boundary(_step_ended)  # Most jobs have no such backend.
    try:
        group = group if group is not None else dist.distributed_c10d._get_default_group()
        use.add(_Group(group, _device_of(group, name)))
    except Exception:
        use.uncounted += 1


def _begin_steps():
    for use in _uses.values():
        use.step()
        use.covered = 0


@state.aside
def _step_ended(steps):
    for name, use in _uses.items():
        done = use.step()
        use.steps += 1
        use.used += done > 0
        use.operations += done
        use.covered_in_steps = use.covered
        if steps & (steps - 1) == 0:  # From time to time, because a process that is killed cannot report at its end.
            _tell_use(name, use)


def _tell_use(name, use):
    figures = (use.steps, use.used, use.operations, use.covered_in_steps, use.uncounted)
    if figures == use.said:
        return
    use.said = figures
    state.later("torch_group_use", backend=name, steps=use.steps, used=use.used, operations=use.operations,
                covered=use.covered_in_steps, uncounted=use.uncounted)


def _tell_uses():
    for name, use in _uses.items():
        _tell_use(name, use)


@state.aside
def operations(name):
    """Done so far by the backend's groups since the last step began."""
    use = _uses.get(name)
    return sum(group.since() or 0 for group in use.groups) if use is not None else 0


def covered(name, work, operations_, collective):
    """A call was a range, in which the backend did so many. What is only posted is waited for elsewhere."""
    use = _uses.get(name)
    if use is None:
        return
    if collective and operations_ == 0:
        use.uncounted = max(use.uncounted, 1)  # It has numbers, and does not count.
    if not hasattr(work, "wait"):
        use.covered += operations_


def wrap():
    state.at_begin.append(_begin_steps)
    atexit.register(_tell_uses)
