"""Memory once per step: the GPU's allocator if it is in use, else the process's resident memory."""

from . import probe, state

_SAMPLE, _PEAK = 3, 4  # As in the table gpu_memory.


def sampler(torch):
    """A function to call at each step boundary. Never starts CUDA, never resets a counter of the program's."""
    cuda = torch.cuda
    peaks = {}

    def sample(_steps):
        if not cuda.is_initialized():
            probe.host_memory()
            return
        if not peaks:
            state.each_boundary()  # Until now the probe has asked from time to time.
        device = cuda.current_device()
        stats = cuda.memory.memory_stats_as_nested_dict(device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        probe.memory(_SAMPLE, device, allocated["current"], reserved["current"])
        # The allocator's peak is since the start or the program's own reset: of this step only if it grew.
        if allocated["peak"] > peaks.get(device, 0):
            probe.memory(_PEAK, device, allocated["peak"], reserved["peak"])
        peaks[device] = allocated["peak"]

    @state.aside
    def safe(steps):
        nonlocal sample
        try:
            sample(steps)
        except Exception as error:  # Another allocator: no counters.
            state.missed("the memory of each step", error)
            sample = lambda _steps: None  # noqa: E731

    return safe
