"""Capture windows from the program, shaped like torch.profiler."""

import enum
from typing import Any, Callable, List, Optional, Set

from . import _runtime

_probe = _runtime.probe
# WindowKind in core/window.h: what leaves it to the program when to record.
_ALL, _MANUAL = 0, 5
_said: Set[str] = set()


class ProfilerAction(enum.Enum):
    """What happens in a step; as torch.profiler.ProfilerAction."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class ProfilerActivity(enum.Enum):
    """As torch.profiler.ProfilerActivity, for programs that name some: Lockstep records what `lockstep run` says."""

    CPU = 0
    CUDA = 2
    XPU = 3
    MTIA = 4
    HPU = 5
    PrivateUse1 = 6


def supported_activities() -> Set[ProfilerActivity]:
    """As torch.profiler's: what is there is recorded, without being named."""
    return set(ProfilerActivity)


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """As torch.profiler.schedule: after `skip_first` steps, cycles of `wait` steps without recording, `warmup` steps
    (without recording, too: nothing has to warm up) and `active` recorded ones. `repeat` cycles, 0: until the end.
    `skip_first_wait` other than 0: the first cycle does not wait.
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise ValueError("schedule: active must be positive, and nothing negative")

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        cycle, at = divmod(step, wait + warmup + active)
        if (repeat and cycle >= repeat) or at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if at == wait + warmup + active - 1 else ProfilerAction.RECORD

    return action


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        _runtime.say(text)


def tensorboard_trace_handler(dir_name: str, worker_name: Optional[str] = None, use_gzip: bool = False,
                              **_options: Any) -> Callable[["profile"], None]:
    """As torch.profiler's, for on_trace_ready; writes nothing and says so, as export_chrome_trace() does."""

    def handler(p: "profile") -> None:
        p.export_chrome_trace(dir_name)

    return handler


class Averages(List[Any]):
    """What key_averages() and events() give: nothing yet, as all ranks are read together after the job."""

    def table(self, *_args: Any, **_options: Any) -> str:
        """One line that says where the table is."""
        return "lockstep: there is one table of all ranks, after the job: lockstep analyze RUN --table ops (or ranges, kernels)"

    def total_average(self) -> "Averages":
        return self

    def export_chrome_trace(self, path: str) -> None:
        _say_export("export_chrome_trace")


def _say_export(name: str) -> None:
    _say_once("%s(): nothing is written while the job runs.  try afterwards: lockstep export RUN" % name)


class profile:
    """Records the active steps of a schedule, and marks the steps: `with profile(schedule=...) as p: ... p.step()`.

    schedule  number of a step -> ProfilerAction: schedule() here or torch.profiler's. None: everything from
              start to stop is recorded.
    on_done   called with this object whenever a window has ended and recording is off, between two steps: `step_num` is
              the number of the next step, `windows` how many windows have ended. What it raises is the program's.
              `on_trace_ready` is another name for it. The data is complete only when the job has ended.

    The other names are torch.profiler's, accepted and without effect: what is recorded of an active step is up to the
    options of `lockstep run`.

    Step n of the schedule begins at the n-th step() call, step 0 with the object. Without a schedule the first step()
    begins the first step that counts (a loop that never calls it keeps the steps that Lockstep finds itself). What
    follows the last step() is no step. If `lockstep run` was given a window (--steps, --schedule, --range, ...), that
    one counts and this object only marks the steps. Without `lockstep run` it says so in one line and does nothing.

    Make and use it at the same steps on all ranks.
    """

    def __init__(self, *, schedule: Optional[Callable[[int], Any]] = None,
                 on_done: Optional[Callable[["profile"], Any]] = None,
                 on_trace_ready: Optional[Callable[["profile"], Any]] = None,
                 activities: Any = None, record_shapes: bool = False, profile_memory: bool = False,
                 with_stack: bool = False, with_flops: bool = False, with_modules: bool = False,
                 experimental_config: Any = None, execution_trace_observer: Any = None, acc_events: bool = False,
                 use_cuda: Optional[bool] = None, custom_trace_id_callback: Any = None,
                 post_processing_timeout_s: Optional[float] = None) -> None:
        self.step_num = 0
        self.windows = 0
        self._schedule = schedule
        self._on_done = on_done if on_done is not None else on_trace_ready
        self._drives = False
        self._started = False
        self._action = "NONE"

    def start(self) -> None:
        """Step 0 begins. `with` calls it."""
        if self._started:
            return
        self._started = True
        self.step_num = 0
        if _probe is None:
            _say_once("profile() records only under `lockstep run`; nothing is recorded.  "
                      "try: lockstep run -- python ...  or: python -m lockstep SCRIPT.py")
            return
        kind = _runtime.window_kind()
        self._drives = kind in (_ALL, _MANUAL)
        if not self._drives and self._schedule is not None:
            _say_once("profile(): the window that `lockstep run` was given counts, not the schedule in the program")
        self._action = self._action_of(0)
        if self._drives:
            _probe.lockstep_start() if self._records() else _probe.lockstep_stop()
        if self._schedule is not None:
            _probe.lockstep_step()

    def step(self) -> None:
        """The step ends and the next one begins."""
        if not self._started:
            return
        self.step_num += 1
        if _probe is None:
            return
        was_recording = bool(_probe.lockstep_recording())
        if self._drives:
            self._switch()
        else:
            _probe.lockstep_step()
            if was_recording and not _probe.lockstep_recording():
                self._done()

    def stop(self) -> None:
        """Recording ends; the step that is open does not count. The end of `with` calls it."""
        if not self._started:
            return
        self._started = False
        if _probe is None:
            return
        recording = bool(_probe.lockstep_recording())
        if self._drives:
            _probe.lockstep_stop()
            if recording:
                self._done()

    def _switch(self) -> None:
        ends = self._records() and self._action == "RECORD_AND_SAVE"
        recorded = self._records()
        self._action = self._action_of(self.step_num)
        if recorded and (ends or not self._records()):
            _probe.lockstep_step_end()
            _probe.lockstep_stop()
            self._done()
            recorded = False
        if self._records() and not recorded:
            _probe.lockstep_start()
        _probe.lockstep_step()

    def _action_of(self, step: int) -> str:
        # By name: torch.profiler's actions are as good as ours.
        return "RECORD" if self._schedule is None else str(getattr(self._schedule(step), "name", "NONE"))

    def _records(self) -> bool:
        return self._action in ("RECORD", "RECORD_AND_SAVE")

    def _done(self) -> None:
        self.windows += 1
        if self._on_done is not None:
            self._on_done(self)

    # torch.profiler's, for loops that only change the import: none of them raises, none writes a file.
    def export_chrome_trace(self, path: str, *_args: Any, **_options: Any) -> None:
        """Nothing: there is one timeline of all ranks, after the job: `lockstep export --format perfetto RUN`."""
        _say_export("export_chrome_trace")

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Nothing, as export_chrome_trace()."""
        _say_export("export_stacks")

    def export_memory_timeline(self, path: str, device: Optional[str] = None) -> None:
        """Nothing, as export_chrome_trace()."""
        _say_export("export_memory_timeline")

    def key_averages(self, *_args: Any, **_options: Any) -> Averages:
        """Empty; its table() says where the tables of all ranks are."""
        return Averages()

    def events(self) -> Averages:
        """Empty: `lockstep.load(RUN)` has the events of all ranks, after the job."""
        return Averages()

    def add_metadata(self, key: str, value: str) -> None:
        """A mark with this text."""
        if _probe is not None:
            _probe.lockstep_mark(("%s: %s" % (key, value)).encode("utf-8", "replace"))

    def add_metadata_json(self, key: str, value: str) -> None:
        """As add_metadata()."""
        self.add_metadata(key, value)

    preset_metadata_json = add_metadata_json

    def toggle_collection_dynamic(self, enable: bool, activities: Any = None) -> None:
        """Recording goes on or off within an active step."""
        if self._drives and self._started and self._records():
            _probe.lockstep_start() if enable else _probe.lockstep_stop()

    def wait_for_exports(self) -> None:
        """Nothing to wait for."""

    def __enter__(self) -> "profile":
        self.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.stop()
