"""Running checks one by one, each in a process of its own, and writing down what comes of them as it comes."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import machine

HERE = pathlib.Path(__file__).resolve().parent
NOTHING_DONE = 77  # ctest's number for a skipped test.


def registered():
    import checks
    import checks_cost
    import checks_kernels
    import checks_torch
    assert checks_cost and checks_kernels and checks_torch  # They register their own.
    return checks.CHECKS


class Lines:
    """JSON lines in a file, each there in full as soon as it is known; and what a reader at the terminal sees."""

    def __init__(self, path=None):
        self.file = open(path, "a", encoding="utf-8") if path else None
        self.began = time.monotonic()

    def write(self, **values):
        if self.file:
            self.file.write(json.dumps({**values, "at_s": round(time.monotonic() - self.began, 1)}) + "\n")
            self.file.flush()
            os.fsync(self.file.fileno())

    def say(self, text):
        print(text, flush=True)


def one(name, ctx, keep_always):
    """The body of a check's process: measured values as they come, and last of all the outcome."""
    import harness
    function, _ = registered()[name]
    outcome = {"result": "FAIL", "why": "interrupted"}
    try:
        outcome = {"result": "PASS", "values": function(ctx) or {}}
    except harness.Skipped as reason:
        outcome = {"result": "SKIP", "why": str(reason)}
    except harness.Failed as reason:
        outcome = {"result": "FAIL", "why": str(reason)}
    except Exception as error:  # A check's own mistake is a failure of that check only.
        import traceback
        outcome = {"result": "FAIL", "why": f"{type(error).__name__}: {error}",
                   "where": traceback.format_exc().splitlines()[-6:]}
    finally:
        if not keep_always:
            ctx.clean()
    print(json.dumps({"outcome": outcome}), flush=True)


def isolated(words, seconds, on_measured):
    """The outcome of `words`, a check's process; killed with all it started when its time is over."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                               start_new_session=True)
    outcome, others = [], []

    def read():
        for line in process.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                said = None
            if isinstance(said, dict) and "outcome" in said:
                outcome.append(said["outcome"])
            elif isinstance(said, dict) and "measured" in said:
                on_measured(said["measured"])
            else:
                others.append(line)

    errors = []
    readers = [threading.Thread(target=read, daemon=True),
               threading.Thread(target=lambda: errors.append(process.stderr.read()), daemon=True)]
    for reader in readers:
        reader.start()
    late = False
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        late = True
    finally:
        # Also what it left running: the GPU would stay busy.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    for reader in readers:
        reader.join(5)
    if outcome:
        return outcome[-1]
    if late:
        return {"result": "FAIL", "why": f"not finished after {seconds:.0f} s"}
    said = " ".join([*errors, *others]).strip()
    return {"result": "FAIL", "why": f"the check died ({process.returncode}): {said[-600:]}"}


def brief(outcome):
    if "why" in outcome:
        return " ".join(outcome["why"].split())
    return "  ".join(f"{key}={value}" for key, value in outcome["values"].items())


class Checking:
    """A series of checks: `options` as tests/gpu/run's."""

    def __init__(self, options, lines, device_seconds=60):
        self.options, self.lines, self.outcomes = options, lines, {}
        self.gpus, self.found = (1, "the tests' GPU") if options.fake else machine.driver(device_seconds)

    def words(self, name, seconds):
        o = self.options
        words = [sys.executable, str(HERE / "run"), str(o.build), "--one", name, "--ranks", str(o.ranks), "--python",
                 o.python, "--pairs", str(o.pairs), "--gpus", str(self.gpus), "--seconds", f"{seconds:.0f}"]
        words += ["--fake"] if o.fake else []
        words += ["--keep", str(pathlib.Path(o.keep) / name)] if o.keep else []
        return words

    def skip(self, name, why):
        self.outcomes[name] = {"result": "SKIP", "why": why}
        self.lines.write(type="check", name=name, **self.outcomes[name])
        self.lines.say(f"SKIP  {name:<26} {why}")

    def check(self, name, seconds=None, left=float("inf")):
        """left: what there is of time. A check that is cut short for want of it has not failed."""
        wanted = registered()[name][1] if seconds is None else seconds
        limit = min(wanted, left)
        began = time.monotonic()
        if self.gpus == 0:
            outcome = {"result": "SKIP", "why": self.found}
        else:
            outcome = isolated(self.words(name, limit), limit,
                               lambda values: self.lines.write(type="measured", check=name, **values))
        if limit < wanted and outcome["result"] == "FAIL" and time.monotonic() - began > limit - 4:
            outcome.update(result="SKIP", why=f"no time was left; cut off: {outcome['why']}")
        outcome["seconds"] = round(time.monotonic() - began, 1)
        self.outcomes[name] = outcome
        self.lines.write(type="check", name=name, **outcome)
        self.lines.say(f"{outcome['result']}  {name:<26} {brief(outcome)}")
        return outcome

    def tally(self):
        return {result: sum(o["result"] == result for o in self.outcomes.values()) for result in ("PASS", "FAIL", "SKIP")}

    def code(self):
        """0: all that could be done passed; 1: something failed; 77: nothing could be done."""
        tally = self.tally()
        if tally["FAIL"]:
            return 1
        return 0 if tally["PASS"] else NOTHING_DONE
