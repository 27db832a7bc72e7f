"""--torch-ops: PyTorch's operators as ranges (source 3), through a dispatch mode.

A mode sees what every backend sees after autograd, in forward and in backward, calls it
unchanged and costs some 10 us an operator. It stays out of the way of the compiler, which
does not compile under a mode of somebody else: with torch.compile in use operators are left out.

--torch-shapes: the shapes of the inputs follow the name (kShapesFollow in core/record.h), and the range's payload is the
number of floating-point operations.
"""

import os

from . import probe, state
from .state import CPU_OP

_MOST_NAMES = 4096  # Combinations of operator and shapes that get a name.


def _product(numbers):
    product = 1
    for number in numbers:
        product *= number
    return product


def _of_product(first, second):
    """Of two matrices, or batches of them: [.., n, k] and [.., k, m]."""
    return 2 * _product(first) * second[-1]


def _of_convolution(args, result):
    """input, weight, bias, stride, padding, dilation, transposed, output_padding, groups"""
    places = args[0].shape if args[6] else result.shape
    return 2 * places[0] * _product(places[2:]) * _product(args[1].shape)


def _of_convolution_backward(args, _result):
    """grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask"""
    places = args[1].shape if args[7] else args[0].shape
    return 2 * places[0] * _product(places[2:]) * _product(args[2].shape) * sum(map(bool, args[10][:2]))


# As torch.profiler's with_flops counts (torch/csrc/profiler/util.cpp); the last as torch.utils.flop_counter.
_FLOPS_OF = {
    "aten.mm.default": lambda args, _result: _of_product(args[0].shape, args[1].shape),
    "aten.bmm.default": lambda args, _result: _of_product(args[0].shape, args[1].shape),
    "aten.addmm.default": lambda args, _result: _of_product(args[1].shape, args[2].shape),
    "aten.baddbmm.default": lambda args, _result: _of_product(args[1].shape, args[2].shape),
    "aten.add.Tensor": lambda args, _result: _product(args[0].shape),
    "aten.mul.Tensor": lambda args, _result: _product(args[0].shape),
    "aten.convolution.default": _of_convolution,
    "aten.convolution_backward.default": _of_convolution_backward,
}


def _shapes_with(tensor):
    """args -> what tells their shapes apart: of each argument its own, those of a list's members, () for others."""

    def shape(argument):
        if isinstance(argument, tensor):
            return argument.shape
        if isinstance(argument, (list, tuple)) and argument and isinstance(argument[0], tensor):
            return tuple(each.shape if isinstance(each, tensor) else () for each in argument)
        return ()

    return lambda args: tuple(map(shape, args))


def _text(shapes):
    """As torch.profiler's tables have it: "[[8, 64], [], [[2], [3]]]"."""
    return "[" + ", ".join(_text(each) if isinstance(each, tuple) else str(each) for each in shapes) + "]"


def start(torch, shapes=False):
    """On the training thread, until the process ends. Called once training begins."""
    from torch.utils._python_dispatch import TorchDispatchMode

    begin, end = probe.range_begin, probe.range_end
    names = {}
    shapes_of = _shapes_with(torch.Tensor)

    def name_of(function):
        name = names.get(function)
        if name is None:
            name = names[function] = str(function).replace(".", "::", 1).encode()
        return name

    def shaped_name_of(function, args):
        key = (function, shapes_of(args))
        name = names.get(key)
        if name is None:
            name = name_of(function)
            if len(names) < _MOST_NAMES:
                name = names[key] = name + b"\x1f" + _text(key[1]).encode()
        return name

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if not state.on:
                return function(*args, **(kwargs or {}))
            name = name_of(function)
            ticks = begin(name, CPU_OP)
            try:
                return function(*args, **(kwargs or {}))
            finally:
                end(name, CPU_OP, 0, ticks, 0, 1)

    class Shaped(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if not state.on:
                return function(*args, **(kwargs or {}))
            try:
                name = shaped_name_of(function, args)
            except Exception:  # Sizes that are no numbers: symbols of a tracer.
                name = name_of(function)
            flops = 0
            ticks = begin(name, CPU_OP)
            try:
                result = function(*args, **(kwargs or {}))
                flops = count(function, args, result)
                return result
            finally:
                end(name, CPU_OP, 0, ticks, flops, 1)

    formulas = {}

    def count(function, args, result):
        formula = formulas.get(function, count)
        if formula is count:
            formula = formulas[function] = _FLOPS_OF.get(str(function))
        if formula is None:
            return 0
        try:
            flops = formula(args, result)
        except Exception:  # Called with keywords, or with sizes that are no numbers.
            return 0
        return flops if isinstance(flops, int) and 0 <= flops < 1 << 63 else 0

    mode = Shaped() if shapes else Operators()
    mode.__enter__()
    return mode


def wrap(torch):
    """Waits for training; gives up when the program compiles."""
    import atexit

    running = []
    shapes = os.environ.get("LOCKSTEP_HOOKS_OPERATORS") == "2"

    def begin_mode():
        try:
            running.append(start(torch, shapes))
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
