"""State that the hooks of one process share: whether they record, and how far training is."""

import functools
import threading
import weakref

from . import probe

TORCH, CPU_OP = 2, 3  # Sources, as in the table ranges.
INPUT, FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, CHECKPOINT = 1, 2, 3, 4, 5, 6  # Categories, likewise.

started = False
on = False
steps = 0         # Boundaries that were not left to the probe.
at_boundary = []  # Called after each of these, with their number so far.
at_begin = []     # Called once, when training begins.

_opened = False
_first = None       # Weak reference to the optimizer whose steps count.
# Steps of each of the others since its last one: its id -> (weak reference, steps). No WeakKeyDictionary, whose methods are
# functions of Python: torch.compile looks at each of them that is called in a compiled optimizer's step.
_others = {}
_optimizers = False  # Whether one was ever made: before that there is no training.
_told = False       # Whether the facts that waited were written.
_pending = []       # Facts that wait for the first record: a process that makes none leaves no file.
_missed = set()     # What was said to be missing: each part once.


class _Thread(threading.local):
    comm = False  # Inside; what nests in its own kind is not recorded again.


thread = _Thread()

# So many steps of another optimizer without one of the first: it trains no more. Programs keep those of a warm-up, of
# a search for the learning rate or of frozen layers; some take 80 steps of one between two of another (actor, critic).
_SUCCEEDS = 100


def never():
    return False


# torch.compiler.is_dynamo_compiling folds to True where the compiler traces through a wrapper: then only the wrapped
# call is left of it. is_compiling, of older versions, does too, and takes longer where nothing is compiled.
compiling = never


def start(torch):
    global compiling, started
    compiler = getattr(torch, "compiler", None)
    compiling = getattr(compiler, "is_dynamo_compiling", None) or getattr(compiler, "is_compiling", None) or never
    later("torch", version=torch.__version__, cuda=getattr(torch.version, "cuda", None) or "none")
    started = True
    resume()


def after_fork():
    """A forked child is a worker until it joins a process group."""
    global on, _opened, _told, _first, steps
    on = False
    probe.training_forked()
    _opened, _told, _first, steps = False, False, None, 0
    _missed.clear()
    _others.clear()
    thread.__dict__.clear()


def resume():
    global on
    on = True
    probe.training(1, -1, -1, -1)


def pause():
    global on
    on = False
    probe.training(0, -1, -1, -1)


_stand_ins = []    # Their code.
_skip_code = None  # Of torch._dynamo, once it is there.


def stands_for(function):
    """A function of ours in the place of one of torch's, down to the file that the compiler knows it by.

    torch._dynamo goes by the file of a function's code: which it compiles, which it only looks through, and how
    torch.compile of a module begins. A wrapper of another file would change what becomes a graph.
    """

    def decorate(wrapper):
        functools.update_wrapper(wrapper, function)
        code = getattr(function, "__code__", None)
        if code is not None:
            wrapper.__code__ = wrapper.__code__.replace(co_filename=code.co_filename, co_firstlineno=code.co_firstlineno)
        if _skip_code is None:
            _stand_ins.append(wrapper.__code__)
        else:
            _skip_code(wrapper.__code__)
        return wrapper

    return decorate


_asides = []


def aside(function):
    """Work of our own that calls torch: what it calls is not to be compiled either, wherever it happens to run."""
    call = [function]
    _asides.append(call)

    @functools.wraps(function)
    def apart(*args, **kwargs):
        return call[0](*args, **kwargs)

    return apart


def leave_alone(skip_code, disable):
    """torch._dynamo is there, with functions of these names."""
    global _skip_code
    _skip_code = skip_code
    for code in _stand_ins:
        skip_code(code)
    _stand_ins.clear()
    for call in _asides:
        call[0] = disable(call[0])
    _asides.clear()


def missed(part, error):
    """What the hooks do not record, and why: the loss TorchHook, once for each part."""
    if part not in _missed:
        _missed.add(part)
        later("torch_hook_missing", part=part, why="%s: %s" % (type(error).__name__, error))


def later(name, /, **values):
    if _told:
        probe.fact(name, **values)
    else:
        _pending.append((name, values))


def before_record():
    """Where something is recorded outside of training: what is known of the process comes first."""
    if not _told:
        tell()


def tell():
    global _told
    _told = True
    probe.training(-1, -1, 1, -1)
    waiting = _pending[:]
    del _pending[:]
    for name, values in waiting:
        probe.fact(name, **values)


def optimizer_made():
    global _optimizers
    _optimizers = True


def optimizer_is_made():
    return _optimizers


def begins(phase, name, trains):
    """The probe did not begin a phase: is it the first of training, or of evaluation before that, which is recorded too?"""
    if not on or _opened:
        return False
    if trains:
        begin_training()
    return probe.phase_enter(phase, name)


def begin_training():
    """The first step begins with the first thing that belongs to training."""
    global _opened
    if _opened:
        return
    _opened = True
    probe.training(-1, 1, -1, -1)
    if not _told:
        tell()
    for call in at_begin:
        call()
    probe.hook_step()


def training():
    """Training has begun: who only loads or evaluates makes no records by pausing."""
    return _opened


def each_boundary(call=None):
    """Python is to be asked at each boundary from now on, and to call this."""
    if call is not None:
        at_boundary.append(call)
    probe.training(-1, -1, -1, 1)


def _succeeds(optimizer):
    """Of another optimizer than the first: whether it has gone on without that one. Until the first one's next step the
    probe leaves all to us."""
    if not _others:
        probe.first_optimizer(None)
    known, so_far = _others.get(id(optimizer), (None, 0))
    if known is None or known() is not optimizer:
        try:
            known, so_far = weakref.ref(optimizer), 0
        except TypeError:  # There are no weak references to it.
            return False
    _others[id(optimizer)] = known, so_far + 1
    return so_far + 1 >= _SUCCEEDS


def boundary(optimizer):
    """A step() has returned, and the probe leaves it to us. The first optimizer's ends the step, and so does its
    successor's once it is gone, or trains no more."""
    global _first, steps
    first = _first() if _first is not None else None
    if first is None or first is not optimizer and _succeeds(optimizer):
        try:
            # A builtin, given here: an optimizer may go when modules are gone already.
            _first = weakref.ref(optimizer, lambda _gone, forget=probe.first_optimizer: forget(None))
        except TypeError:
            _first = lambda: optimizer  # noqa: E731
        _others.clear()
        probe.first_optimizer(optimizer)
    elif first is not optimizer:
        probe.phase_since()
        return
    elif _others:
        _others.clear()
        probe.first_optimizer(optimizer)
        if probe.boundary(optimizer):
            return
    steps += 1
    probe.hook_step()
    for call in at_boundary:
        call(steps)
    probe.phase_since()
