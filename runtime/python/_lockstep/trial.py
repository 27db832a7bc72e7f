"""One run of a job by `lockstep tune`: settings of PyTorch changed where objects are made, and what there is to change.

Nothing here runs in a job of the user's: only where LOCKSTEP_TRIAL_TORCH is set (core/env.h), "SETTING=VALUE,..", which
may name nothing known. Settings are changed at the construction of an object and at no other time. What was found, changed and
could not be changed are facts (core/fact.h), so that a setting that never took effect is not taken for one without.
"""

import functools
import inspect
import os
import sys

from . import state

KEPT_LOSSES = 8  # Of the first backward passes: analysis/tune/losses.h compares them.

_asked = {}
_set = set()  # What was said to be set.


def wrap(torch):
    for part in os.environ.get("LOCKSTEP_TRIAL_TORCH", "").split(","):
        name, equals, value = part.partition("=")
        if equals:
            _asked[name] = value
    state.at_begin.append(lambda: _say_process(torch))
    for install in (_ddp, _loader, _fsdp, _losses):
        try:
            install(torch)
        except Exception as error:
            state.missed("trial: " + install.__name__.strip("_"), error)


def _say_process(torch):
    cuda = getattr(torch, "cuda", None)
    sharded = any(name in sys.modules for name in ("torch.distributed.fsdp._fully_shard", "torch.distributed._composable.fsdp"))
    state.later("trial_torch", threads=torch.get_num_threads(), cuda=int(bool(cuda and cuda.is_available())),
                fully_shard=int(sharded and _shards()))


def _shards():
    for name in ("torch.distributed.fsdp", "torch.distributed._composable.fsdp"):
        module = getattr(sys.modules.get(name), "FSDPModule", None)
        if module is not None:
            import gc

            return any(issubclass(type(one), module) for one in gc.get_objects())
    return False


def _was_set(setting, was, now):
    if setting not in _set:
        _set.add(setting)
        state.later("trial_set", setting=setting, was=was, now=now)


def _was_not(setting, why):
    if setting not in _set:
        _set.add(setting)
        state.later("trial_not_set", setting=setting, why=why)


def _flag(value):
    return value in ("1", "true", "True")


def _number(text):
    value = float(text)
    return int(value) if value == int(value) else value


def _arguments(function, self, args, kwargs):
    """(The call's own arguments, all of them with the defaults); None where the call is wrong, which is for torch to say."""
    try:
        bound, whole = (inspect.signature(function).bind(self, *args, **kwargs) for _ in range(2))
    except TypeError:
        return None, None
    whole.apply_defaults()
    return bound, whole.arguments


def _ddp(torch):
    if not torch.distributed.is_available():
        return
    import torch.nn.parallel

    ddp, dist = torch.nn.parallel.DistributedDataParallel, torch.distributed
    init = ddp.__init__
    known = inspect.signature(init).parameters

    @functools.wraps(init)
    def made(self, *args, **kwargs):
        bound, given = _arguments(init, self, args, kwargs)
        if bound is None:
            return init(self, *args, **kwargs)
        for setting, text in _asked.items():
            kind, _, name = setting.partition(".")
            if kind != "ddp" or name == "first_bucket_mb":
                continue
            if name not in known:
                _was_not(setting, "this version of PyTorch has no such argument")
                continue
            value = _number(text) if name == "bucket_cap_mb" else _flag(text)
            _was_set(setting, given.get(name), value)
            bound.arguments[name] = given[name] = value
        first = getattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", None)
        asked = _asked.get("ddp.first_bucket_mb")
        if asked is not None and first is None:
            _was_not("ddp.first_bucket_mb", "this version of PyTorch does not say what its default is")
        elif asked is not None:
            dist._DEFAULT_FIRST_BUCKET_BYTES = int(float(asked) * (1 << 20))
            _was_set("ddp.first_bucket_mb", first, dist._DEFAULT_FIRST_BUCKET_BYTES)
        try:
            init(*bound.args, **bound.kwargs)
        finally:
            if asked is not None and first is not None:
                dist._DEFAULT_FIRST_BUCKET_BYTES = first
        try:
            _say_ddp(self, given)
        except Exception as error:
            state.missed("trial: what a DistributedDataParallel is made with", error)

    ddp.__init__ = made


def _say_ddp(ddp, given):
    cap = given.get("bucket_cap_mb")
    bytes_ = sum(p.numel() * p.element_size() for p in ddp.module.parameters() if p.requires_grad)
    state.later("trial_ddp", bucket_cap_mb=25 if cap is None else cap, default_cap=int(cap is None or cap == 25), bytes=bytes_,
                gradient_as_bucket_view=int(bool(given.get("gradient_as_bucket_view"))),
                static_graph=int(bool(given.get("static_graph"))),
                find_unused_parameters=int(bool(given.get("find_unused_parameters"))))


def _loader(torch):
    from torch.utils.data import DataLoader, IterableDataset

    init = DataLoader.__init__

    @functools.wraps(init)
    def made(self, *args, **kwargs):
        bound, given = _arguments(init, self, args, kwargs)
        if bound is None:
            return init(self, *args, **kwargs)
        own = bound.arguments
        iterable = isinstance(given.get("dataset"), IterableDataset)
        workers = _asked.get("loader.num_workers")
        if workers is not None and iterable:
            # Each worker would give the whole of it.
            _was_not("loader.num_workers", "the dataset is iterable: how it divides itself among workers is its own matter")
        elif workers is not None:
            _was_set("loader.num_workers", given["num_workers"], int(workers))
            own["num_workers"] = given["num_workers"] = int(workers)
        if "loader.pin_memory" in _asked:
            value = _flag(_asked["loader.pin_memory"])
            _was_set("loader.pin_memory", given["pin_memory"], value)
            own["pin_memory"] = given["pin_memory"] = value
        init(*bound.args, **bound.kwargs)
        state.later("trial_loader", num_workers=given["num_workers"], pin_memory=int(bool(given["pin_memory"])),
                    iterable=int(iterable))

    DataLoader.__init__ = made


def _fsdp(torch):
    """FSDP2. Its module is imported here, before the program does: what it imports by name is then ours."""
    if not any(setting.startswith("fsdp.") for setting in _asked):
        return
    import torch.distributed.fsdp as fsdp

    function, units = getattr(fsdp, "fully_shard", None), []
    if function is None:
        for setting in _asked:
            if setting.startswith("fsdp."):
                _was_not(setting, "this version of PyTorch has no torch.distributed.fsdp.fully_shard")
        return
    takes = inspect.signature(function).parameters

    @functools.wraps(function)
    def fully_shard(*args, **kwargs):
        reshard = _asked.get("fsdp.reshard_after_forward")
        if reshard is not None and "reshard_after_forward" in takes:
            was, kwargs["reshard_after_forward"] = kwargs.get("reshard_after_forward"), _flag(reshard)
            _was_set("fsdp.reshard_after_forward", was, reshard)
        result = function(*args, **kwargs)
        units.append(result)
        return result

    for name in ("torch.distributed.fsdp", "torch.distributed.fsdp._fully_shard", "torch.distributed._composable.fsdp"):
        module = sys.modules.get(name)
        if module is not None and getattr(module, "fully_shard", None) is function:
            module.fully_shard = fully_shard
    if "fsdp.prefetch" in _asked:
        state.at_begin.append(lambda: _prefetch(units, int(_asked["fsdp.prefetch"])))


def _prefetch(units, depth):
    """The root, which is sharded last, gathers with the first unit and has nothing to be gathered before."""
    inner = [unit for unit in units if hasattr(unit, "set_modules_to_forward_prefetch")][:-1]
    if len(inner) < 2:
        _was_not("fsdp.prefetch", "fewer than two units are sharded by fully_shard when training begins")
        return
    for i, unit in enumerate(inner):
        unit.set_modules_to_forward_prefetch(inner[i + 1:i + 1 + depth])
        unit.set_modules_to_backward_prefetch(inner[max(i - depth, 0):i][::-1])
    _was_set("fsdp.prefetch", "by order of use", depth)


def _losses(torch):
    """What the first backward passes begin with, read on every run of a session alike: on a GPU that waits for it."""
    function = torch.autograd.backward
    seen = []

    @state.stands_for(function)
    def backward(*args, **kwargs):
        if not state.compiling() and len(seen) < KEPT_LOSSES:
            _note_loss(torch, seen, args[0] if args else kwargs.get("tensors"))
        return function(*args, **kwargs)

    torch.autograd.backward = backward


@state.aside
def _note_loss(torch, seen, tensors):
    try:
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        value = sum(float(root.detach().double().sum()) for root in roots)
        dtype = str(roots[0].dtype).replace("torch.", "")
    except Exception as error:
        value, dtype = None, ""
        state.missed("trial: a loss", error)
    seen.append(value)
    if value is not None:
        state.later("trial_loss", n=len(seen) - 1, value=repr(value), dtype=dtype)
