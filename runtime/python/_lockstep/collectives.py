"""torch.distributed on a backend that nothing records (gloo, ucc): its calls become ranges.

MPI is seen by its own wrappers, NCCL by its plugin. DDP's own reductions go through C++ and
are not seen here; ddp.py says so. What a group's backend did is counted all the same: it numbers its operations,
whoever asks for them.
"""

import atexit
import functools
import inspect
import weakref

from . import probe, state
from .state import COMMUNICATION, TORCH, thread

_RECORDED = {"mpi", "nccl"}
_CALLS = (
    "all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "all_gather", "all_gather_coalesced",
    "all_gather_into_tensor", "_all_gather_base", "gather", "scatter", "reduce_scatter", "reduce_scatter_tensor",
    "_reduce_scatter_base", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "send", "recv", "isend",
    "irecv", "batch_isend_irecv", "broadcast_object_list", "all_gather_object", "gather_object", "scatter_object_list",
)
_ALWAYS = {"all_reduce", "broadcast", "reduce", "all_gather", "barrier", "send", "recv"}  # Of every version.
# What torch's own Python calls of its C++: the group comes first. DDP sends its buffers so at each forward.
_BUILTIN_CALLS = ("_broadcast_coalesced",)
_unrecorded = False  # Whether any group has such a backend.
_known = set()
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
        self.said = None     # The figures that were told last.

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
            if some is None:  # Gone: what it did last nobody knows.
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
def _count_group(dist, group, name):
    use = _uses.get(name)
    if use is None:
        use = _uses[name] = _Use()
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
        if steps & (steps - 1) == 0:  # Told now and then: who is killed has no end.
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
def backend_of(dist, group, tensor=None):
    """Name of the backend that serves this tensor ("gloo"), "" unknown."""
    try:
        name = str(dist.get_backend(group)).lower()
        if name in ("undefined", "custom") or ":" in name:  # 2.x: one per kind of device.
            device = tensor.device if tensor is not None else None
            group = group if group is not None else dist.group.WORLD
            name = group._get_backend(device).name().lower() if device is not None else ""
        return name
    except Exception as error:
        state.missed("the backend of a process group", error)
        return ""


def is_recorded(name):
    return name == "" or name in _RECORDED


@state.aside
def _note_group(dist, group):
    global _unrecorded
    try:
        config = str(dist.get_backend_config(group))  # "cpu:gloo,cuda:nccl", since 2.0.
    except Exception:
        config = str(dist.get_backend(group))
    names = sorted({part.split(":")[-1].strip().lower() for part in config.split(",")} - {""})
    for name in names:
        if name not in _RECORDED:
            _unrecorded = True
            if dist.get_world_size(group) > 1:
                _count_group(dist, group, name)
        if name not in _known:
            _known.add(name)
            state.later("torch_backend", name=name, recorded=int(name in _RECORDED), size=dist.get_world_size(group),
                        only=int(len(names) == 1))


def _bytes_of(argument):
    """Of a tensor, or of a list of tensors."""
    try:
        if isinstance(argument, (list, tuple)):
            return sum(_bytes_of(one) for one in argument)
        return argument.numel() * argument.element_size() if hasattr(argument, "element_size") else 0
    except Exception as error:
        state.missed("the bytes of calls of torch.distributed", error)
        return 0


def _first_tensor(argument):
    while isinstance(argument, (list, tuple)) and argument:
        argument = argument[0]
    return argument if hasattr(argument, "element_size") else None


def _group_at(function, name):
    """Position of the argument that is the group; None: it has none."""
    try:
        parameters = list(inspect.signature(function).parameters)
        return parameters.index("group") if "group" in parameters else None
    except (TypeError, ValueError) as error:
        state.missed("the group of torch.distributed." + name, error)
        return None


@state.aside
def _operations(name):
    """Done so far by the backend's groups since the last step began."""
    use = _uses.get(name)
    return sum(group.since() or 0 for group in use.groups) if use is not None else 0


def _call(dist, function, name, at, tensor_at=0):
    text = b"c10d::" + name.lstrip("_").encode() if name in _BUILTIN_CALLS else b"c10d::" + name.encode()

    @state.stands_for(function)
    def call(*args, **kwargs):
        if state.compiling() or not _unrecorded or not state.on or thread.comm:
            return function(*args, **kwargs)
        group = kwargs.get("group") if at is None or len(args) <= at else args[at]
        first = args[tensor_at] if len(args) > tensor_at else next(iter(kwargs.values()), None)
        backend = backend_of(dist, group, _first_tensor(first))
        if is_recorded(backend):
            return function(*args, **kwargs)
        thread.comm = True
        state.before_record()
        done = _operations(backend)
        begin = probe.range_begin(text, TORCH)
        work = None
        try:
            work = function(*args, **kwargs)
            return work
        finally:
            thread.comm = False
            probe.range_end(text, TORCH, COMMUNICATION, begin, _bytes_of(first), 1)
            # What is only posted is waited for elsewhere.
            if not hasattr(work, "wait") and backend in _uses:
                _uses[backend].covered += _operations(backend) - done

    return call


def wrap(torch):
    dist = torch.distributed
    if not dist.is_available():
        return
    c10d = dist.distributed_c10d
    for name in _CALLS:
        function = getattr(c10d, name, None)
        if not inspect.isfunction(function):
            if name in _ALWAYS:
                state.missed("torch.distributed." + name, AttributeError("not a function of torch.distributed"))
            continue
        wrapped = _call(dist, function, name, _group_at(function, name))
        setattr(c10d, name, wrapped)
        if getattr(dist, name, None) is function:
            setattr(dist, name, wrapped)
    for name in _BUILTIN_CALLS:
        function = getattr(dist, name, None)
        if function is None:
            state.missed("torch.distributed." + name, AttributeError("not a function of torch.distributed"))
            continue
        setattr(dist, name, _call(dist, function, name, 0, tensor_at=1))
    state.at_begin.append(_begin_steps)
    state.at_boundary.append(_step_ended)
    atexit.register(_tell_uses)
    for name, noted in (("init_process_group", lambda _made: _note_default(dist)),
                        ("new_group", lambda made: _note_made(dist, made))):
        function = getattr(c10d, name)
        wrapped = _noting(function, noted)
        setattr(c10d, name, wrapped)
        if getattr(dist, name, None) is function:
            setattr(dist, name, wrapped)


def _note_default(dist):
    state.resume()
    _note_group(dist, None)
    if getattr(state, "fsdp", None) is not None:
        state.fsdp()


def _note_made(dist, made):
    if made is not None and dist.get_rank(made) >= 0:  # Not a member: no group.
        _note_group(dist, made)


def _noting(function, noted):
    @functools.wraps(function)
    def make(*args, **kwargs):
        made = function(*args, **kwargs)
        try:
            noted(made)
        except Exception as error:
            state.missed("torch.distributed." + function.__name__, error)
        return made

    return make
