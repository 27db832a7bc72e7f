"""--torch-ops: PyTorch's operators as ranges (source 3), through a dispatch mode.

A mode sees what every backend sees after autograd, in forward and in backward, calls it
unchanged and costs some 10 us an operator. It stays out of the way of the compiler, which
does not compile under a mode of somebody else: with torch.compile in use operators are left out.
"""

from . import probe, state
from .state import CPU_OP


def start(torch):
    """On the training thread, until the process ends. Called once training begins."""
    from torch.utils._python_dispatch import TorchDispatchMode

    begin, end = probe.range_begin, probe.range_end
    names = {}

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if not state.on:
                return function(*args, **(kwargs or {}))
            name = names.get(function)
            if name is None:
                name = names[function] = str(function).replace(".", "::", 1).encode()
            ticks = begin(name, CPU_OP)
            try:
                return function(*args, **(kwargs or {}))
            finally:
                end(name, CPU_OP, 0, ticks, 0, 1)

    mode = Operators()
    mode.__enter__()
    return mode


def wrap(torch):
    """Waits for training; gives up when the program compiles."""
    import atexit

    running = []

    def begin_mode():
        try:
            running.append(start(torch))
        except Exception as error:
            state.missed("--torch-ops", error)

    def stop():
        while running:
            running.pop().__exit__(None, None, None)

    compiler = getattr(torch, "compile", None)
    if compiler is not None:
        import functools

        @functools.wraps(compiler)
        def compile(*args, **kwargs):
            if begin_mode in state.at_begin or running:
                state.missed("--torch-ops", RuntimeError("off, because the program uses torch.compile"))
            if begin_mode in state.at_begin:
                state.at_begin.remove(begin_mode)
            stop()
            return compiler(*args, **kwargs)

        torch.compile = compile
    state.at_begin.append(begin_mode)
    atexit.register(stop)
