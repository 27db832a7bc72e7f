"""The phases of training: data, forward, backward, optimizer; and through the last the steps.

A step ends when step() of the first optimizer seen has returned (AMP's GradScaler.step around
it included, also when it skips the update), so that loading the next batch opens the next step.
"""

import functools

from . import probe, state
from .state import BACKWARD, FORWARD, INPUT, OPTIMIZER

_begin, _end, _boundary = probe.phase_begin, probe.phase_end, probe.boundary


def wrap(torch):
    from . import memory

    state.at_boundary.append(memory.sampler(torch))
    for part, install in (("autograd.backward", _backward), ("Optimizer.step", _optimizer),
                          ("GradScaler.step", _scaler), ("DataLoader", _loader),
                          ("FullyShardedDataParallel", _fsdp)):
        try:
            install(torch)
        except Exception as error:
            state.missed(part, error)


def _forward_of(torch, function, name):
    """A model's forward, recorded once however many of them nest."""
    grad_enabled, compiling = torch.is_grad_enabled, state.compiling

    @state.stands_for(function)
    def forward(*args, **kwargs):
        if compiling() or not (_begin(FORWARD, name) or state.begins(FORWARD, name, grad_enabled())):
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        finally:
            _end(FORWARD)

    return forward


def _fsdp(torch):
    # FSDP imports half of torch: wrapped when a program has imported it (checked when a group is made).
    state.fsdp = lambda: _wrap_fsdp(torch)


def _wrap_fsdp(torch):
    import sys

    module = sys.modules.get("torch.distributed.fsdp")
    if module is None:
        return
    sharded = getattr(module, "FullyShardedDataParallel", None)
    if sharded is None:
        state.missed("FullyShardedDataParallel", AttributeError("torch.distributed.fsdp has no such class"))
        return
    if hasattr(sharded.forward, "_lockstep"):
        return
    wrapped = _forward_of(torch, sharded.forward, b"FullyShardedDataParallel.forward")
    wrapped._lockstep = True
    sharded.forward = wrapped


def _backward(torch):
    # Tensor.backward calls this one through the module; it is left alone, because tensor
    # subclasses distinguish functions by identity (__torch_function__).
    function = torch.autograd.backward

    compiling = state.compiling

    @state.stands_for(function)
    def backward(*args, **kwargs):
        if compiling() or not (_begin(BACKWARD, b"backward") or state.begins(BACKWARD, b"backward", True)):
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        finally:
            _end(BACKWARD)

    torch.autograd.backward = backward


def _step_of(function):
    compiling, names = state.compiling, {}

    def named(cls):
        names[cls] = name = (cls.__name__ + ".step").encode("utf-8", "replace")
        return name

    @state.stands_for(function)
    def step(*args, **kwargs):
        if compiling() or not args:
            return function(*args, **kwargs)
        optimizer = args[0]
        cls = optimizer.__class__
        name = names.get(cls) or named(cls)
        if not (_begin(OPTIMIZER, name) or state.begins(OPTIMIZER, name, True)):
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        finally:
            _end(OPTIMIZER)
        if not _boundary(optimizer):
            state.boundary(optimizer)
        return result

    step._lockstep = True
    return step


def _wrap_step(cls):
    """The class's step as torch's profiling hook left it."""
    current = cls.step
    if getattr(current, "_lockstep", False):
        return
    wrapped = _step_of(current)
    inner = getattr(current, "__wrapped__", None)
    if inner is not None:
        # The compiler takes torch's hook away by replacing step with step.__wrapped__ (2.0 and later).
        wrapped.__wrapped__ = _step_of(inner)
    cls.step = wrapped


def _optimizer(torch):
    base = torch.optim.Optimizer
    # What each new (or unpickled) optimizer calls to have its class's step hooked: 1.x, 2.x.
    for name in ("_hook_for_profile", "_patch_step_function"):
        if name in base.__dict__:
            break
    else:
        raise AttributeError("Optimizer has neither _hook_for_profile nor _patch_step_function")
    function = getattr(base, name)

    @functools.wraps(function)
    def hooked(self, *args, **kwargs):
        result = function(self, *args, **kwargs)
        if state.compiling():  # Not made yet; its class is wrapped with the next one.
            return result
        try:
            state.optimizer_made()
            _wrap_step(self.__class__)
            if getattr(state, "fsdp", None) is not None:
                state.fsdp()
        except Exception as error:
            state.missed("Optimizer.step of " + self.__class__.__name__, error)
        return result

    setattr(base, name, hooked)


def _scaler(torch):
    scalers = []
    for path in ("torch.amp", "torch.cuda.amp"):  # torch.amp's is the base since 2.3.
        module = torch
        for part in path.split(".")[1:]:
            module = getattr(module, part, None)
        scaler = getattr(module, "GradScaler", None)
        if scaler is not None and "step" in scaler.__dict__ and scaler not in scalers:
            scalers.append(scaler)
    if not scalers:
        raise AttributeError("neither torch.amp nor torch.cuda.amp has a GradScaler with a step")
    for scaler in scalers:
        scaler.step = _scaled(scaler.step)


def _scaled(function):
    compiling, name = state.compiling, b"GradScaler.step"

    @state.stands_for(function)
    def step(self, optimizer, *args, **kwargs):
        if compiling() or not (_begin(OPTIMIZER, name) or state.begins(OPTIMIZER, name, True)):
            return function(self, optimizer, *args, **kwargs)
        try:
            result = function(self, optimizer, *args, **kwargs)
        finally:
            _end(OPTIMIZER)
        if not _boundary(optimizer):
            state.boundary(optimizer)
        return result

    return step


def _loader(torch):
    import torch.utils.data.dataloader as dataloader

    iterator = dataloader._BaseDataLoaderIter
    iterator.__next__ = _fetching(iterator.__next__, b"DataLoader.__next__")
    if getattr(iterator, "next", None) is not None:  # Python 2's name, in 1.13.
        iterator.next = iterator.__next__
    # Starting workers belongs to it: without persistent ones that happens at every epoch.
    dataloader.DataLoader.__iter__ = _fetching(dataloader.DataLoader.__iter__, b"DataLoader.__iter__")
    workers = dataloader._utils.worker
    workers._worker_loop = _in_worker(workers._worker_loop)


def _in_worker(function):
    """Spawned workers load the hooks as any other process; what they do is the loading, not the training."""

    @functools.wraps(function)
    def loop(*args, **kwargs):
        state.after_fork()
        return function(*args, **kwargs)

    return loop


def _fetching(function, name):
    compiling = state.compiling

    @state.stands_for(function)
    def fetch(self):
        if compiling() or not (_begin(INPUT, name) or state.begins(INPUT, name, state.optimizer_is_made())):
            return function(self)
        try:
            return function(self)
        finally:
            _end(INPUT)

    return fetch
