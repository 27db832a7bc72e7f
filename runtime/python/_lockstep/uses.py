"""How much a backend that nothing records carried: it numbers its operations, whoever asks for them."""

import atexit
import weakref

from . import state

_uses = {}  # By name of such a backend.


class _Use:
    """How much of a backend's work falls into steps, by the numbers that its groups give their operations."""

    def __init__(self):
        self.groups = []     # [weak reference to the group's backend, its last number].
        self.uncounted = 0   # Groups that do not say.
        self.steps = self.used = self.operations = self.covered = 0
        self.said = None     # The figures that were told last.

    def step(self):
        """A step, or what comes before the first one, has ended."""
        done = 0
        for group in self.groups:
            now = _number(group[0]())
            if now is not None:
                done += max(0, now - group[1])
                group[1] = now
        return done


def _number(backend):
    """Of the last operation; None where the group is gone."""
    try:
        return None if backend is None else int(backend._get_sequence_number_for_group())
    except Exception:
        return None


def _backend_object(dist, group, name):
    """The part of a group that serves the backend: in 2.x a group has one for each kind of device."""
    group = group if group is not None else dist.distributed_c10d._get_default_group()
    part = getattr(group, "_get_backend", None)
    if part is None:
        return group
    import torch

    for device in ("cpu", "cuda"):
        try:
            found = part(torch.device(device))
        except Exception:
            continue
        if found.name().lower() == name:
            return found
    return group


@state.aside
def count_group(dist, group, name):
    use = _uses.get(name)
    if use is None:
        use = _uses[name] = _Use()
    try:
        backend = _backend_object(dist, group, name)
        number = _number(backend)
        if number is None:
            use.uncounted += 1
        else:
            use.groups.append([weakref.ref(backend), number])
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
        if steps & (steps - 1) == 0:  # Told now and then: who is killed has no end.
            _tell_use(name, use)


def _tell_use(name, use):
    figures = (use.steps, use.used, use.operations, use.covered, use.uncounted)
    if figures == use.said:
        return
    use.said = figures
    state.later("torch_group_use", backend=name, steps=use.steps, used=use.used, operations=use.operations,
                covered=use.covered, uncounted=use.uncounted)


def _tell_uses():
    for name, use in _uses.items():
        _tell_use(name, use)


@state.aside
def operations(name):
    """Done so far by the backend's groups since the last step began."""
    use = _uses.get(name)
    return sum(max(0, (_number(ref()) or last) - last) for ref, last in use.groups) if use is not None else 0


def covered(name, work, operations_):
    """A call was a range, in which the backend did so many. What is only posted is waited for elsewhere."""
    if not hasattr(work, "wait") and name in _uses:
        _uses[name].covered += operations_


def wrap():
    state.at_begin.append(_begin_steps)
    state.at_boundary.append(_step_ended)
    atexit.register(_tell_uses)
