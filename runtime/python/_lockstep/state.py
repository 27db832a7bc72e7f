"""What the hooks of one process share: whether they record, and where training stands."""

import threading
import weakref

from . import probe

TORCH, CPU_OP = 2, 3  # Sources, as in the table ranges.
INPUT, FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION = 1, 2, 3, 4, 5  # Categories, likewise.

on = False
wrappers = []     # Functions that stand in front of torch's.
skip_code = None  # Of torch._dynamo, once it is there.
steps = 0         # Boundaries after the first.
at_boundary = []  # Called after each, with the number of steps so far.
at_begin = []     # Called once, when training begins.

_opened = False
_first = None       # Weak reference to the optimizer whose steps count.
_optimizers = False  # Whether one was ever made: before that nobody trains.
_pending = []       # Facts that wait for the process to train: one that does not leaves no file.


class _Thread(threading.local):
    forward = backward = step = input = comm = False  # Inside; what nests in its own kind is not recorded again.
    had_forward = False                               # Since the last backward.
    since = 0                                         # End of the last phase: without DDP, forward began there.

    def __init__(self):
        self.labels = []


thread = _Thread()


def never():
    return False


# torch.compiler.is_compiling folds to True where the compiler traces through a wrapper: then
# only the wrapped call is left of it.
compiling = never


def start(torch):
    global on, compiling
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or never
    later("torch", version=torch.__version__, cuda=getattr(torch.version, "cuda", None) or "none")
    on = True


def after_fork():
    """A forked child is a worker until it joins a process group."""
    global on, _opened, _first, steps
    on = False
    _opened, _first, steps = False, None, 0
    thread.__dict__.clear()
    thread.__init__()


def resume():
    global on
    on = True


def wrapper(function):
    wrappers.append(function)
    if skip_code is not None:
        skip_code(function.__code__)
    return function


def missed(part, error):
    later("torch_hook_missing", part=part, why="%s: %s" % (type(error).__name__, error))


def later(name, /, **values):
    if _opened:
        probe.fact(name, **values)
    else:
        _pending.append((name, values))


def optimizer_made():
    global _optimizers
    _optimizers = True


def begin_training(only_with_optimizer=False):
    """The first step begins with the first thing that belongs to training."""
    global _opened
    if _opened or (only_with_optimizer and not _optimizers):
        return
    _opened = True
    for name, values in _pending:
        probe.fact(name, **values)
    del _pending[:]
    for call in at_begin:
        call()
    probe.hook_step()


def boundary(optimizer):
    """A step() has returned. The first optimizer's ends the step, and so does its successor's once it is gone."""
    global _first, steps
    first = _first() if _first is not None else None
    if first is None:
        try:
            _first = weakref.ref(optimizer)
        except TypeError:
            _first = lambda: optimizer  # noqa: E731
    elif first is not optimizer:
        thread.since = probe.now()
        return
    steps += 1
    probe.hook_step()
    for call in at_boundary:
        call(steps)
    thread.since = probe.now()
