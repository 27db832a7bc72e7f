"""torch.profiler.record_function: the program's own labels become ranges."""


from . import probe, state


def wrap(torch):
    # Methods of the class, not the class: TorchScript and the compiler know it by identity, and
    # TorchScript reads the source of its methods through __wrapped__.
    record_function = torch.autograd.profiler.record_function
    enter, leave = record_function.__enter__, record_function.__exit__
    compiling, begin, end = state.compiling, probe.label_begin, probe.label_end
    if begin is None or end is None:
        raise RuntimeError("this Python does not take functions of the probe")

    @state.stands_for(enter)
    def __enter__(self):
        if compiling():
            return enter(self)
        result = enter(self)
        if begin(self, self.name):
            state.before_record()
            begin(self, self.name)
        return result

    @state.stands_for(leave)
    def __exit__(self, *exc):
        if not compiling():
            end(self)
        return leave(self, *exc)

    record_function.__enter__ = __enter__
    record_function.__exit__ = __exit__
