"""torch.profiler.record_function: the program's own labels become ranges."""


from . import probe, state
from .state import OPTIMIZER, TORCH, thread

# Torch's own labels of what training.py records already.
_COVERED = ("Optimizer.step#", "enumerate(DataLoader)#", "DistributedDataParallel.forward")
_ZERO_GRAD = "Optimizer.zero_grad#"
_names = {}


def _bytes_of(name):
    known = _names.get(name)
    if known is None:
        if len(_names) >= 4096:  # Names made up per step.
            _names.clear()
        known = _names[name] = str(name).encode("utf-8", "replace").replace(b"\0", b" ")
    return known


def wrap(torch):
    # Methods of the class, not the class: TorchScript and the compiler know it by identity, and
    # TorchScript reads the source of its methods through __wrapped__.
    record_function = torch.autograd.profiler.record_function
    enter, leave = record_function.__enter__, record_function.__exit__

    @state.stands_for(enter)
    def __enter__(self):
        if state.compiling():
            return enter(self)
        result = enter(self)
        name = self.name
        if state.on and not name.startswith(_COVERED):
            text = _bytes_of(name)
            state.before_record()
            thread.labels.append((id(self), text, probe.range_begin(text, TORCH)))
        return result

    @state.stands_for(leave)
    def __exit__(self, *exc):
        if state.compiling():
            return leave(self, *exc)
        labels = thread.labels
        if labels:
            own = id(self)
            for at in range(len(labels) - 1, -1, -1):  # The last one, unless generators interleave.
                if labels[at][0] == own:
                    _, text, begin = labels.pop(at)
                    category = OPTIMIZER if self.name.startswith(_ZERO_GRAD) else 0
                    probe.range_end(text, TORCH, category, begin, 0, 1)
                    break
        return leave(self, *exc)

    record_function.__enter__ = __enter__
    record_function.__exit__ = __exit__
