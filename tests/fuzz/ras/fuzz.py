#!/usr/bin/env python3
"""Makes the corpus, from jobs that stop, then runs fuzz_ras on it.

usage: fuzz.py BUILD_DIR [--seconds 20] [--jobs 1] [--seed 1] [--keep DIR]
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e/hang"))
import jobs_that_stop  # noqa: E402
from ras_answers import Answers  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import campaign  # noqa: E402

WORDS = (
    "Job summary", "Communicators...", "Errors", "Warnings", "(total)", "#0-0 (0a) MISMATCH", "INCOMPLETE", "DEAD", "RUNNING", "NOCOMM",
    "Communicator ranks have different status", "Communicator ranks have different AllReduce operation counts", "ranks have launched up to operation ",
    "has not launched any operations", "Rank 1 -- GPU 0 managed by process 7 on node n", "The missing ranks: 1,2", "ranks have status FINALIZE",
    "reported System error", "\\\"communicators\\\"", "\\\"ranks\\\"", "\\\"missing_ranks\\\"", "\\\"collective_counts\\\"", "\\\"considered_dead\\\"",
    "\\\"hash\\\"", "\\\"size\\\"", "AllReduce", "\\x00",
)


def make_corpus(directory):
    """Small jobs in every form, some twice and with everything that may be wrong."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, job in enumerate(jobs_that_stop.all_jobs()):
        if job.size > 4 or job.style.get("backend", "nccl") != "nccl":
            continue
        job.play()
        for form in range(5):
            odd = {"silent": {1}, "gone": {("0", 0)}, "states": {("0", 1): "FINALIZE"}, "errors": {0: 1}, "world": number % 2 == 0} if form % 2 else {}
            answers = Answers(job, nvml=form % 3, **odd)
            text = answers.json() if form < 2 else answers.text(verbose=form == 3, per_kind=form != 4)
            (directory / f"{job.name}-{form}").write_text(text + ("\0" + Answers(job).json() if form == 2 else ""))


if __name__ == "__main__":
    sys.exit(campaign.run("fuzz_ras", make_corpus, 32768, WORDS))
