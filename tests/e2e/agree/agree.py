"""What is said twice is said alike: text, --explain, JSON, every table, the page, whatif, diff and baseline, merge, info and the exports of one run
against each other. Live figures are compared with the trace in tests/e2e/live.

usage: agree.py BUILD_DIR CASE

The cases are generated runs; with LOCKSTEP_TRACES_DIR=DIR also each run or directory of traces in DIR (case Foreign).
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import jobs
from specs import KINETO, NAMED, mixture
from forms import Forms

from agreements import ALL
from form_agreements import FORMS

MIXTURES = 10


def check(run, name):
    """Every agreement, on every view of a run. The mismatches, in words."""
    views = Forms(run)
    bad = []
    for agreement in [*ALL, *FORMS]:
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
    if views.json["run"]["incomplete_steps"] != 1 or "steps cut short" not in views.text:
        bad.append(f"{run.name}: {views.json['run']['incomplete_steps']} incomplete steps")
    if any(step["complete"] for step in views.json["steps"] if step["index"] == number):
        bad.append(f"{run.name}: the empty step is complete")
    return bad


def foreign(place):
    where = os.environ.get("LOCKSTEP_TRACES_DIR")
    if not where:
        print("skipped: LOCKSTEP_TRACES_DIR is not set")
        sys.exit(77)
    bad = []
    for run in sorted(pathlib.Path(where).iterdir()):
        # Logs and dumps of other tools may lie beside them.
        if (run / "ranks").is_dir() or any(file.name.endswith((".json", ".json.gz", ".sqlite")) for file in run.glob("*")):
            copy = place / run.name
            shutil.copytree(run, copy)
            bad += check(copy, run.name)
            shutil.rmtree(copy)
    return bad


def main():
    place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-agree-"))
    try:
        case = sys.argv[2]
        if case == "Foreign":
            bad = foreign(place)
        elif case == "Kineto":
            bad = generated(place, KINETO, ("--kineto", "nccl=seq")) + empty_last_step(place)
        elif case == "Mixtures":
            bad = generated(place, {f"mixture_{seed}": mixture(seed) for seed in range(1, MIXTURES + 1)})
        else:
            bad = generated(place, NAMED)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print("\n".join(bad) or "all agree")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
