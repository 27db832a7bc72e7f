"""Calls of torch.distributed become ranges where no other source shows them (gloo, ucc).

MPI is seen by its own wrappers, NCCL by its plugin. Works of gloo are seen by the probe, DDP's own too (groups.py); the
ranges say where the program called. Of other backends (ucc) the ranges are all there is, and how much their groups
carried (uses.py); ddp.py reports what DDP reduces over them.
"""

import functools
import inspect
import weakref

from . import groups, identity, probe, state, uses
from .state import COMMUNICATION, TORCH, thread

_RECORDED = {"mpi", "nccl"}  # And gloo, if it can be observed.
_SHOWN = {"mpi", "nccl"}     # By calls of their own.
_CALLS = (
    "all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "all_gather", "all_gather_coalesced",
    "all_gather_into_tensor", "_all_gather_base", "all_gather_single", "gather", "gather_into_tensor", "gather_single",
    "scatter", "reduce_scatter", "reduce_scatter_tensor", "_reduce_scatter_base", "reduce_scatter_single", "all_to_all",
    "all_to_all_single", "barrier", "monitored_barrier", "send", "recv", "isend", "irecv", "broadcast_object_list",
    "all_gather_object", "gather_object", "scatter_object_list",
)
_MESSAGES = {"send", "recv", "isend", "irecv"}
_ALWAYS = {"all_reduce", "broadcast", "reduce", "all_gather", "barrier", "send", "recv"}  # Of every version.
# What torch's own Python calls of its C++: the group comes first. DDP sends its buffers so at each forward.
_BUILTIN_CALLS = ("_broadcast_coalesced",)
_ranges = False  # Whether any group has a backend whose calls become ranges.
_known = set()
_waits = False  # Whether what a wait in Python is for is recorded.
_futures = weakref.WeakSet()  # What comes of works, and what is made of it.
_sources = weakref.WeakKeyDictionary()  # Receives from any source that nobody has waited for -> (work, number of its group)
_torch = None


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
    global _ranges, _waits
    try:
        config = str(dist.get_backend_config(group))  # "cpu:gloo,cuda:nccl", since 2.0.
    except Exception:
        config = str(dist.get_backend(group))
    names = sorted({part.split(":")[-1].strip().lower() for part in config.split(",")} - {""})
    if groups.OBSERVED in names and groups.observes(_torch):
        _RECORDED.add(groups.OBSERVED)
        groups.made(dist, group)
    for name in names:
        if name not in _SHOWN:
            _ranges = True
        if name not in _RECORDED and dist.get_world_size(group) > 1:
            uses.count_group(dist, group, name)
        if name not in _known:
            _known.add(name)
            _waits = _known <= _RECORDED - _SHOWN
            probe.torch_waits(int(_waits))
            state.later("torch_backend", name=name, recorded=int(name in _RECORDED), size=dist.get_world_size(group),
                        only=int(len(names) == 1))
    if _RECORDED.issuperset(names) and not _SHOWN.issuperset(names):
        state.before_record()  # C++ records its works and waits, with or without a call in Python.


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


def _call(dist, function, name, builtin=False):
    at, partner, tag_at, parameters, tensor_at = (0, None, None, [], 1) if builtin else (None, None, None, [], 0)
    try:
        if not builtin:
            parameters = list(inspect.signature(function).parameters)
            at = parameters.index("group") if "group" in parameters else None
            partner = next((i for i, one in enumerate(parameters) if one in ("dst", "src")), None)
            tag_at = parameters.index("tag") if "tag" in parameters else None
    except (TypeError, ValueError) as error:
        state.missed("the group of torch.distributed." + name, error)
    of_messages, receives = name == "monitored_barrier", name in ("recv", "irecv")
    text = b"c10d::" + (name.lstrip("_") if builtin else name).encode()

    @state.stands_for(function)
    def call(*args, **kwargs):
        if state.compiling() or not _ranges or not state.on or thread.comm:
            return function(*args, **kwargs)
        group = kwargs.get("group") if at is None or len(args) <= at else args[at]
        first = args[tensor_at] if len(args) > tensor_at else next(iter(kwargs.values()), None)
        backend = backend_of(dist, group, _first_tensor(first))
        if backend == "" or backend in _SHOWN:
            return function(*args, **kwargs)
        thread.comm = True
        state.before_record()
        recorded = backend in _RECORDED
        before = _enter(dist, group, args, kwargs) if recorded and not builtin else None
        barrier = probe.torch_barrier(groups.number_of(dist, group)[0]) if before is not None and of_messages else 0
        done = 0 if recorded else uses.operations(backend)
        begin = probe.range_begin(text, TORCH)
        if builtin:
            probe.torch_shown(1)
        work = None
        try:
            work = function(*args, **kwargs)
            if barrier:
                probe.torch_barrier_end(barrier)  # One that fails has no end.
            if receives and before is not None:
                _note_source(dist, group, args, kwargs, work)
            return work
        finally:
            thread.comm = False
            if builtin:
                probe.torch_shown(-1)
            probe.range_end(text, TORCH, COMMUNICATION, begin, _bytes_of(first), 1)
            if before is not None:
                probe.torch_enter(before, -1, -1)
            if not recorded:
                uses.covered(backend, work, uses.operations(backend) - done, name not in _MESSAGES)

    def _argument(args, kwargs, index):
        if index is None:
            return None
        return args[index] if len(args) > index else kwargs.get(parameters[index])

    @state.aside
    def _note_source(dist, group, args, kwargs, made):
        """Who sends what is received from any source is known once it has come."""
        try:
            if _argument(args, kwargs, partner) is not None or kwargs.get("group_src") is not None:
                return
            work, number = probe.torch_from_any(), groups.number_of(dist, group)[0]
            if isinstance(made, int):
                probe.torch_source(work, number, made, -1)
            elif work and made is not None:
                _sources[made] = work, number
        except Exception as error:
            state.missed("who sent what was received from any source", error)

    @state.aside
    def _enter(dist, group, args, kwargs):
        number, _ = groups.number_of(dist, group)
        peer, tag = _argument(args, kwargs, partner), _argument(args, kwargs, tag_at)
        in_group = next((kwargs[key] for key in ("group_dst", "group_src") if kwargs.get(key) is not None), None)
        if peer is None and in_group is not None:
            peer = dist.get_global_rank(group if group is not None else dist.group.WORLD, in_group)
        return probe.torch_enter(number, peer if isinstance(peer, int) else -1,
                                 -1 if name not in _MESSAGES else tag if isinstance(tag, int) else 0)

    return call


@state.aside
def _tell_source(work):
    try:
        received = _sources.pop(work, None)
        if received is not None:
            probe.torch_source(*received, -1, work._source_rank())
    except Exception as error:
        state.missed("who sent what was received from any source", error)


_WAIT = b"c10d::wait"


def _wait(function, args, kwargs):
    state.before_record()
    begin = probe.range_begin(_WAIT, TORCH)
    probe.torch_shown(1)
    try:
        return function(*args, **kwargs)
    finally:
        probe.torch_shown(-1)
        probe.range_end(_WAIT, TORCH, COMMUNICATION, begin, 0, 1)


def _wrap_wait(torch):
    """Waiting for works that were begun without it (fully_shard, ZeRO): the program's, as DDP waits in C++."""
    kind = torch._C._distributed_c10d.Work
    function, compiling = kind.wait, state.compiling

    @state.stands_for(function)
    def wait(*args, **kwargs):
        if compiling() or not state.on or not (_sources or _waits and not thread.comm):
            return function(*args, **kwargs)
        done = function(*args, **kwargs) if not _waits or thread.comm else _wait(function, args, kwargs)
        if _sources:
            _tell_source(args[0])
        return done

    kind.wait = wait


def _wrap_futures(torch):
    """Waiting for the future of a work, or for what a program makes of it (`then`, torch.futures.collect_all): as for
    the work itself. Other futures are somebody else's (RPC, TorchScript)."""
    work, future = torch._C._distributed_c10d.Work, torch._C.Future

    def noted(function, of_works):
        @state.stands_for(function)
        def give(*args, **kwargs):
            made = function(*args, **kwargs)
            if _waits and not state.compiling():
                note(made, args, of_works)
            return made

        return give

    @state.aside
    def note(made, args, of_works):
        try:
            if of_works(args[0]):
                _futures.add(made)
        except Exception as error:
            state.missed("the futures of works of torch.distributed", error)

    def waited(function):
        @state.stands_for(function)
        def wait(*args, **kwargs):
            if not _waits or state.compiling() or not state.on or thread.comm or args[0] not in _futures:
                return function(*args, **kwargs)
            return _wait(function, args, kwargs)

        return wait

    work.get_future = noted(work.get_future, lambda _: True)
    future.then = noted(future.then, lambda one: one in _futures)
    torch._C._collect_all = noted(torch._C._collect_all, lambda several: any(one in _futures for one in several))
    future.wait = waited(future.wait)


def wrap_functional(functional):
    """Waiting for functional collectives (DTensor's too), whose works nobody in Python holds. What a compiler made of
    a program calls the operators behind these functions itself, whose waits the probe sees (comms/c10d/waits.cc)."""
    for name in ("wait_tensor", "wait_tensors"):  # The second is of 2.15.
        function = getattr(functional, name, None)
        if function is not None:
            setattr(functional, name, _functional_wait(function))


def _functional_wait(function):
    @state.stands_for(function)
    def wait(*args, **kwargs):
        if state.compiling() or not state.on or not _waits or thread.comm:
            return function(*args, **kwargs)
        return _wait(function, args, kwargs)

    return wait


def wrap(torch):
    global _torch
    _torch = torch
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
        wrapped = _call(dist, function, name)
        setattr(c10d, name, wrapped)
        if getattr(dist, name, None) is function:
            setattr(dist, name, wrapped)
    for name in _BUILTIN_CALLS:
        function = getattr(dist, name, None)
        if function is None:
            state.missed("torch.distributed." + name, AttributeError("not a function of torch.distributed"))
            continue
        setattr(dist, name, _call(dist, function, name, builtin=True))
    try:
        _wrap_wait(torch)
        _wrap_futures(torch)
    except Exception as error:
        state.missed("waiting for works of torch.distributed", error)
    uses.wrap()
    for name, noted in (("init_process_group", lambda _made: _note_default(dist)),
                        # What makes a group of a list of ranks, whoever asks: in 1.13 there is but one function.
                        ("_new_group_with_tag" if hasattr(c10d, "_new_group_with_tag") else "new_group",
                         lambda made: _note_made(dist, made)),
                        ("split_group", lambda made: _note_made(dist, made))):  # Not in 1.13; of gloo since 2.15.
        function = getattr(c10d, name, None)
        if function is not None:
            identity.everywhere(function, _noting(function, noted))
    wrapped = _leaving(dist, c10d.destroy_process_group)
    if getattr(dist, "destroy_process_group", None) is c10d.destroy_process_group:
        dist.destroy_process_group = wrapped
    c10d.destroy_process_group = wrapped


def _leaving(dist, function):
    @functools.wraps(function)
    def destroy(group=None, *args, **kwargs):
        try:
            groups.gone(dist, group)
        except Exception:  # There is no group: PyTorch says so itself.
            pass
        return function(group, *args, **kwargs)

    return destroy


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
        before = probe.torch_enter(groups.UNKNOWN, -1, -1)  # What it does by itself is on no group that is known yet.
        probe.torch_making()
        try:
            made = function(*args, **kwargs)
        finally:
            probe.torch_enter(before, -1, -1)
        try:
            noted(made)
        except Exception as error:
            state.missed("torch.distributed." + function.__name__, error)
        return made

    return make
