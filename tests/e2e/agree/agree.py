"""What is said twice is said alike: text, --explain, JSON, every table, the page, whatif, diff and baseline, merge, info and the exports of one run
against each other. Live figures are compared with the trace in tests/e2e/live.

usage: agree.py BUILD_DIR Named|Others|Mixtures|Kineto|Pairs|Shares
       agree.py BUILD_DIR Foreign DIR...

The cases are generated runs, Named and Others every second one of the same list; Shares: of many of them the tables only, of all ranks and steps and of single ones. Foreign: every run and directory of traces that is one of the directories or
below one, without any named those in LOCKSTEP_TRACES_DIR.
"""

import json
import os
import pathlib
import re
import shutil
import stat
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import jobs
from specs import KINETO, NAMED, PAIRS, mixture, pipeline
from forms import Forms

from agreements import ALL
from form_agreements import FORMS, shares
from price_agreements import PRICES, two_runs

MIXTURES = 10
SHARES = 8  # Of each kind.


def check(run, name):
    """Every agreement, on every view of a run. The mismatches, in words."""
    views = Forms(run)
    bad = []
    for agreement in [*ALL, *FORMS, *PRICES]:
        try:
            bad += [f"{name}: {agreement.__name__}: {what}" for what in agreement(views)]
        except Exception as error:  # A view that is not as expected is a mismatch as well.
            bad.append(f"{name}: {agreement.__name__}: {type(error).__name__}: {error}")
    return bad


def made(place, name, text, *words):
    spec = place / f"{name}.trace"
    spec.write_text(text)
    run = place / name
    done = jobs.run([jobs.BUILD / "make_run", spec, run, *words], place)
    assert done.returncode == 0, done.stderr.decode()
    return run


def generated(place, texts, words=()):
    bad = []
    for name, text in texts.items():
        bad += check(made(place, name, text, *words), name)
    return bad


def shares_of_many(place):
    texts = {f"mixture_{seed}": mixture(seed, gpu=True) for seed in range(101, 101 + SHARES)}
    texts |= {f"pipeline_{seed}": pipeline(seed) for seed in range(1, 1 + SHARES)}
    bad, seen = [], set()
    for name, text in texts.items():
        bad += [f"{name}: {what}" for what in shares(Forms(made(place, name, text)), seen)]
        shutil.rmtree(place / name)
    # Each column must have been asked with a part and a whole.
    columns = {f"{name}.{column}" for name, column in seen}
    bad += [f"no run has {missing}" for missing in ("kernels.share_of_busy", "stream-waits.share", "idle.share_of_idle", "critical-ops.share",
                                                     "groups.exposed_share", "queue.empty_share") if missing not in columns]
    return bad


def pairs(place, texts, words=()):
    """Each run beside another one."""
    bad = []
    for name, (base, new) in texts.items():
        first, second = (Forms(made(place, f"{name}_{side}", text, *words)) for side, text in (("base", base), ("new", new)))
        try:
            bad += [f"{name}: two_runs: {what}" for what in two_runs(first, second)]
        except Exception as error:
            bad.append(f"{name}: two_runs: {type(error).__name__}: {error}")
    return bad


def empty_last_step(place):
    """A profiler that stops right after prof.step() marks a step in which nothing is done: it is in no figure, and counted."""
    run = made(place, "empty_last_step", KINETO["gpu_ddp"], "--kineto", "nccl=seq")
    for path in run.glob("*.json"):
        trace = json.loads(path.read_text())
        last = max((e for e in trace["traceEvents"] if e.get("name", "").startswith("ProfilerStep#")), key=lambda e: e["ts"])
        number = int(last["name"].split("#")[1]) + 1
        trace["traceEvents"].append(dict(last, name=f"ProfilerStep#{number}", ts=last["ts"] + last["dur"], dur=49))
        path.write_text(json.dumps(trace))
    bad, views = check(run, run.name), Forms(run)
    if views.json["run"]["incomplete_steps"] != 1 or "in which no kernel was launched" not in views.text:
        bad.append(f"{run.name}: {views.json['run']['incomplete_steps']} incomplete steps")
    if any(step["complete"] for step in views.json["steps"] if step["index"] == number):
        bad.append(f"{run.name}: the empty step is complete")
    return bad


NO_RUN = re.compile(r"error: .+\n(  .+\n){1,2}")


TRACES = (".json", ".json.gz", ".sqlite", ".h5", ".spool")


def runs_below(directory):
    """The directories that Lockstep reads, as it says itself: this one, or else those in it."""
    done = jobs.run([jobs.LOCKSTEP, "info", directory], "/", timeout=300)
    if done.returncode in (0, 3):
        return [directory], []
    # Logs and dumps of other tools may lie beside them: they are refused in a sentence.
    bad = [] if done.returncode == 2 and NO_RUN.fullmatch(done.stderr.decode()) else \
        [f"{directory.name}: info: exit {done.returncode}: {done.stderr.decode()[:300]}"]
    found = []
    if any(path.is_file() and path.name.endswith(TRACES) for path in directory.iterdir()):
        bad.append(f"{directory.name}: not read: {done.stderr.decode()[:300]}")
    for inner in sorted(path for path in directory.iterdir() if path.is_dir()):
        runs, wrong = runs_below(inner)
        found, bad = found + runs, bad + wrong
    return found, bad


def foreign(place, directories):
    bad, checked = [], []
    for number, directory in enumerate(directories):
        # What is made of traces lies beside them, and they may be read-only.
        copy = place / str(number) / directory.name
        shutil.copytree(directory, copy)
        for path in [copy, *copy.rglob("*")]:
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
        runs, wrong = runs_below(copy)
        bad += wrong
        for run in runs:
            bad += check(run, run.relative_to(copy.parent))
        checked += runs
        shutil.rmtree(copy.parent)
    print("checked: " + (", ".join(str(run.relative_to(place)) for run in checked) or "nothing that can be read, and refused in a sentence"))
    return bad


def main():
    place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-agree-"))
    try:
        case = sys.argv[2]
        if case == "Foreign":
            named = [pathlib.Path(word) for word in sys.argv[3:]]
            if not named and (where := os.environ.get("LOCKSTEP_TRACES_DIR")):
                named = sorted(pathlib.Path(where).iterdir())
            directories = [path for path in named if path.is_dir()]
            if not directories:
                print("skipped: no reference traces (LOCKSTEP_SHARED_DIR, LOCKSTEP_TRACES_DIR)")
                sys.exit(77)
            bad = foreign(place, directories)
        elif case == "Kineto":
            bad = generated(place, KINETO, ("--kineto", "nccl=seq")) + empty_last_step(place)
        elif case == "Pairs":
            bad = pairs(place, PAIRS) + pairs(place, {"kineto": PAIRS["gpu"]}, ("--kineto", "nccl=seq"))
        elif case == "Shares":
            bad = shares_of_many(place)
        elif case == "Mixtures":
            bad = generated(place, {f"mixture_{seed}": mixture(seed) for seed in range(1, MIXTURES + 1)})
        else:
            bad = generated(place, dict(list(NAMED.items())[case == "Others"::2]))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print("\n".join(bad) or "all agree")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
