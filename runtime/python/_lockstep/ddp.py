"""DDP's buckets, as DDP itself says they are, and whether anybody records their reduction.

No communication hook is ever registered: DDP allows one, and it changes the job. A hook of the
program's own is watched; else DDP's logging data is read, after its second step, when the buckets have been rebuilt in
the order of gradient arrival. Forwards inside no_sync() are no step: the rebuild follows the first backward that reduces.
"""

import atexit
import copy
import functools
import weakref

from . import collectives, groups, probe, state
from .state import FORWARD, TORCH

_models = weakref.WeakKeyDictionary()
_made = 0


class _Model:
    def __init__(self, index):
        self.index = index
        self.hook = ""          # Qualified name of the program's communication hook.
        self.reduces = True     # DDP or torch's own hook reduces over the group's backend.
        self.buckets = {}       # As the hook saw them: index -> (bytes, dtype)
        self.forwards = 0       # With gradients that are reduced, until reported.
        self.said = self.reported = False


_settled = {}  # id of a model of which nothing is left to be noted -> (id of its group, its number and first rank, weak reference)


def _settle(dist, ddp):
    """Its forwards need no function of ours any more: in the cold caches of a training step, each takes a microsecond."""
    own, settled = id(ddp), _settled
    settled[own] = (id(ddp.process_group), *groups.number_of(dist, ddp.process_group),
                    weakref.ref(ddp, lambda _gone: settled.pop(own, None)))


def _model(ddp):
    global _made
    model = _models.get(ddp)
    if model is None:
        model = _models[ddp] = _Model(_made)
        _made += 1
    return model


class _Hook:
    """A communication hook with a range around it. Pickles and copies as the hook itself."""

    def __init__(self, hook, model):
        functools.update_wrapper(self, hook)
        self.__wrapped__ = hook
        self._model = model

    def __call__(self, state_, bucket):
        if not state.on:
            return self.__wrapped__(state_, bucket)
        index, bytes_ = -1, 0
        try:
            index, buffer = bucket.index(), bucket.buffer()
            if index == 0:  # They are launched in this order: a new step.
                self._model.buckets.clear()
            bytes_ = buffer.numel() * buffer.element_size()
            self._model.buckets[index] = (bytes_, str(buffer.dtype).replace("torch.", ""))
        except Exception as error:
            state.missed("the buckets of a communication hook", error)
        name = b"ddp bucket %d" % index
        begin = probe.range_begin(name, TORCH)
        try:
            return self.__wrapped__(state_, bucket)
        finally:
            probe.range_end(name, TORCH, 0, begin, bytes_, 1)

    def __reduce__(self):
        return copy.copy, (self.__wrapped__,)  # Of a function, copy gives the function.

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return copy.deepcopy(self.__wrapped__, memo)


def wrap(torch):
    if not torch.distributed.is_available():
        return
    import torch.nn.parallel

    ddp = torch.nn.parallel.DistributedDataParallel
    _wrap_forward(torch, ddp)
    register, init = ddp.register_comm_hook, ddp.__init__

    @functools.wraps(register)
    def register_comm_hook(self, state, hook):  # noqa: F811  DDP's own names, callers may use them.
        if not callable(hook) or not hasattr(hook, "__qualname__"):
            return register(self, state, hook)
        model = _model(self)
        result = register(self, state, _Hook(hook, model))
        model.hook = "%s.%s" % (getattr(hook, "__module__", ""), hook.__qualname__)
        # Torch's hooks call the group's backend from C++.
        model.reduces = model.hook.startswith("torch.")
        return result

    @functools.wraps(init)
    def made(self, *args, **kwargs):
        before = probe.torch_enter(_given(torch.distributed, args, kwargs), -1, -1)
        try:
            init(self, *args, **kwargs)
        finally:
            probe.torch_enter(before, -1, -1)

    ddp.register_comm_hook = register_comm_hook
    ddp.__init__ = made
    atexit.register(_report_short)


def _wrap_forward(torch, ddp):
    forward, grad_enabled = ddp.forward, torch.is_grad_enabled
    compiling, settled_of, torch_enter = state.compiling, _settled.get, probe.torch_enter
    begin, end, name = probe.phase_begin, probe.phase_end, b"DistributedDataParallel.forward"

    @state.stands_for(forward)
    def noted(self, *inputs, **kwargs):
        if compiling() or not state.on:
            return forward(self, *inputs, **kwargs)
        settled = settled_of(id(self))
        if settled is not None and settled[0] == id(self.process_group):
            before = torch_enter(settled[1], settled[2], -1)
        else:
            settled, before = None, _enter(torch.distributed, self)
        # Recorded once however many of them nest.
        entered = begin(FORWARD, name) or state.begins(FORWARD, name, grad_enabled())
        try:
            result = forward(self, *inputs, **kwargs)
        finally:
            if entered:
                end(FORWARD)
            torch_enter(before, -1, -1)
        if settled is None:
            _note(torch.distributed, self, grad_enabled())
        return result

    ddp.forward = noted


@state.aside
def _enter(dist, ddp):
    """The broadcasts of buffers that a forward begins with are from the group's first rank. -> what was there before"""
    return probe.torch_enter(*groups.number_of(dist, ddp.process_group), -1)


def _given(dist, args, kwargs):
    """The group that a model is made for, which compares and broadcasts the parameters."""
    if kwargs.get("device_mesh") is not None or len(args) > 4:
        return groups.UNKNOWN
    return groups.number_of(dist, kwargs.get("process_group"))[0]


@state.aside
def _note(dist, ddp, trains):
    """A forward has returned."""
    try:
        model = _model(ddp)
        if not model.said:
            model.said = True
            _say_backend(dist, ddp, model)
        if not model.reported and trains:
            model.forwards += ddp.require_backward_grad_sync
            if model.forwards >= 3:
                _report(ddp, model)
        elif model.reported:
            _settle(dist, ddp)
    except Exception as error:
        state.missed("DistributedDataParallel's backend", error)


def _say_backend(dist, ddp, model):
    parameter = next(iter(ddp.module.parameters()), None)
    name = collectives.backend_of(dist, ddp.process_group, parameter)
    recorded = collectives.is_recorded(name)
    state.later("ddp_model", model=model.index, backend=name, recorded=int(recorded), hook=model.hook or "none",
                size=dist.get_world_size(ddp.process_group))
    if not recorded and model.reduces and dist.get_world_size(ddp.process_group) > 1:
        state.later("torch_unrecorded", backend=name, what="DDP reduces its gradients through it")


@state.aside
def _report(ddp, model, last=False):
    try:
        data = ddp._get_ddp_logging_data()
        # The rebuilt buckets are in it from the third forward on (torch 1.13); never without a rebuild.
        if not data.get("rebuilt_bucket_sizes") and model.forwards < 4 and not last:
            return
        model.reported = True
        _report_buckets(ddp, model, data)
    except Exception as error:
        model.reported = True
        state.missed("DistributedDataParallel's buckets", error)


def _report_short():
    """Jobs that ended before their third step."""
    for ddp, model in list(_models.items()):
        if not model.reported and model.forwards >= 2:
            _report(ddp, model, last=True)


def _numbers(text):
    return [int(part) for part in str(text).replace(",", " ").split()]


def _report_gradients(model, parameters):
    """Their sizes, so that another bucket limit's buckets are known and not guessed."""
    begin = 0
    for i in range(1, len(parameters) + 1):
        one_more = i < len(parameters) and parameters[i].dtype == parameters[begin].dtype and i - begin < 1000
        if not one_more:
            probe.fact("gradients", model=model.index, **{"from": begin},
                       dtype=str(parameters[begin].dtype).replace("torch.", ""),
                       bytes=" ".join(str(p.numel() * p.element_size()) for p in parameters[begin:i]))
            begin = i


def _report_buckets(ddp, model, data):
    rebuilt = bool(_numbers(data.get("rebuilt_bucket_sizes", "")))
    sizes = _numbers(data.get("rebuilt_bucket_sizes" if rebuilt else "bucket_sizes", ""))
    # "3 2, 1 0": a group per bucket.
    indices = [_numbers(group) for group in str(data.get("rebuilt_per_bucket_param_indices", "")).split(",")]
    parameters = [p for p in ddp.module.parameters() if p.requires_grad]
    if model.buckets and sorted(model.buckets) == list(range(len(model.buckets))):
        seen = [model.buckets[i] for i in range(len(model.buckets))]
        if [bytes_ for bytes_, _ in seen] != sizes:
            rebuilt, indices = rebuilt and len(seen) == len(sizes), indices if len(seen) == len(sizes) else []
        sizes, dtypes = [bytes_ for bytes_, _ in seen], [dtype for _, dtype in seen]
    else:
        dtypes = None
    order = [index for group in indices for index in group]
    if sorted(order) != list(range(len(parameters))):
        order = range(len(parameters))[::-1]  # As DDP registers them, until it has seen them arrive.
    _report_gradients(model, [parameters[index] for index in order])
    cap = _numbers(data.get("bucket_cap_bytes", 0))
    for i, bytes_ in enumerate(sizes):
        own = indices[i] if rebuilt and len(indices) == len(sizes) else []
        dtype = dtypes[i] if dtypes else ""
        if not dtype and own and own[0] < len(parameters):
            dtype = str(parameters[own[0]].dtype).replace("torch.", "")
        if not dtype and len({p.dtype for p in parameters}) == 1:
            dtype = str(parameters[0].dtype).replace("torch.", "")
        probe.fact("ddp_bucket", model=model.index, bucket=i, bytes=bytes_, cap=cap[0] if cap else 0, dtype=dtype,
                   rebuilt=int(rebuilt), parameters=" ".join(map(str, own)))
