#!/usr/bin/env python3
"""`lockstep tune` on real jobs of which it is known what is wrong with them.

usage: tune_test.py BUILD_DIR [unittest arguments]
"""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def children_of_jobs(directory):
    """Processes that still run and know this directory."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(str(directory).encode() in word for word in words):
            found.append(words)
    return found


class Tuned:
    def __init__(self, *options, job, budget="280s", launcher=()):
        self.directory = tempfile.TemporaryDirectory(prefix="lockstep-tune-")
        self.out = pathlib.Path(self.directory.name) / "tune"
        launch = [*jobs.MPIRUN, *launcher, "-np", 2]
        self.done = jobs.run([jobs.LOCKSTEP, "tune", "--budget", budget, "-o", self.out, *options, "--", *launch, *job],
                             cwd=self.directory.name, timeout=295)
        self.text = self.done.stdout.decode()
        answer = self.out / "tune.json"
        self.json = json.loads(answer.read_text()) if answer.exists() else None
        self.left = children_of_jobs(self.out)

    def __del__(self):
        self.directory.cleanup()

    @property
    def candidate(self):
        assert len(self.json["candidates"]) == 1, self.json["candidates"]
        return self.json["candidates"][0]


def torch_job(kind):
    return [jobs.PYTHON, HERE / "tune_job.py", kind]


class Base(unittest.TestCase):
    def check(self, tuned, code=0):
        self.assertEqual(tuned.done.returncode, code, tuned.done.stderr.decode() + tuned.text)
        self.assertEqual(tuned.left, [])
        self.assertEqual(tuned.json["schema"], "lockstep.tune/1")

    def better(self, tuned, least):
        """The only candidate is recommended, by at least this part of the step."""
        self.check(tuned)
        self.assertEqual(tuned.candidate["verdict"], "better", tuned.text)
        self.assertEqual(tuned.json["best"], [0])
        self.assertGreater(tuned.json["total"]["gain"], least)
        self.assertGreater(tuned.json["total"]["low"], 0)
        self.assertIn("for good", tuned.text)


class Mpi(Base):
    """A C++ job without any hook, and with steps that are ended from outside."""

    def test_a_bad_algorithm(self):
        # Reductions in segments of 32 bytes, by the command line: tune's variable is stronger.
        bad = ["--mca", "coll_tuned_use_dynamic_rules", 1, "--mca", "coll_tuned_allreduce_algorithm", 2,
               "--mca", "coll_tuned_reduce_algorithm", 3, "--mca", "coll_tuned_reduce_algorithm_segmentsize", 32]
        tuned = Tuned("--steps", 20, "--only", "openmpi.all_reduce=3", launcher=bad,
                      job=[jobs.PROGRAMS / "ddp_mpi", "--overlap", "off", "--step-ms", 2, "--input-ms", 0, "--steps", 100000,
                           "--quiet"])
        self.better(tuned, 0.2)
        self.assertIn("no loss was seen", tuned.text)
        self.assertTrue((tuned.out / "as-it-is" / "manifest.json").exists())

    def test_check_refuses(self):
        tuned = Tuned("--only", "openmpi.yield=1", "--check", 'case "$2" in */run-*) exit 1;; esac',
                      job=[jobs.PROGRAMS / "ddp_mpi", "--step-ms", 5, "--steps", 15])
        self.check(tuned)
        self.assertEqual(tuned.candidate["verdict"], "changed_results")
        self.assertEqual(tuned.json["best"], [])
        broken = Tuned("--check", "false", job=[jobs.PROGRAMS / "ddp_mpi", "--step-ms", 5, "--steps", 15])
        self.assertEqual(broken.done.returncode, 2)
        self.assertIn(b"--check fails on two runs of the job as it is", broken.done.stderr)

    def test_jobs_that_cannot_be_tuned(self):
        def said(job, budget="280s"):
            tuned = Tuned("-q", job=job, budget=budget)
            self.assertEqual(tuned.done.returncode, 2, tuned.done.stderr)
            self.assertEqual(tuned.left, [])
            lines = tuned.done.stderr.decode().rstrip("\n").split("\n")
            self.assertLessEqual(len(lines), 3, lines)
            return "\n".join(lines)

        self.assertIn("exit code 7", said(["sh", "-c", "exit 7"]))
        self.assertIn("lockstep run", said([jobs.LOCKSTEP, "run", "true"]))
        # It would run for hours: a tenth of the budget, and the remedy.
        self.assertIn("--steps 40", said(["sleep", "3600"], "30s"))
        self.assertIn("steps", said(["true"]))


class Torch(Base):
    def test_a_bad_bucket_cap(self):
        tuned = Tuned("--only", "ddp.bucket_cap_mb=25", job=torch_job("buckets"))
        self.better(tuned, 0.1)
        self.assertEqual(tuned.json["losses_not_compared"], "")
        self.assertIn("DistributedDataParallel(model, bucket_cap_mb=25)", tuned.text)

    def test_loader_workers(self):
        tuned = Tuned("--only", "loader.num_workers=2", job=torch_job("slow"))
        self.better(tuned, 0.2)

    def test_what_fails_changes_or_does_not_apply(self):
        fails = Tuned("--only", "ddp.find_unused_parameters=False", job=torch_job("unused"))
        self.check(fails)
        self.assertEqual(fails.candidate["verdict"], "failed")
        self.assertIn("exit code", fails.candidate["why"])
        changes = Tuned("--only", "loader.num_workers=2", job=torch_job("drawn"))
        self.check(changes)
        self.assertEqual(changes.candidate["verdict"], "changed_results", changes.text)
        self.assertIn("loss ", changes.candidate["why"])
        apart = Tuned("--only", "fsdp.reshard_after_forward=False", job=torch_job("slow"))
        self.check(apart)
        self.assertEqual(apart.candidate["verdict"], "not_applied")
        for tuned in (fails, changes, apart):
            self.assertEqual(tuned.json["best"], [])
            self.assertIn("Leave it as it is", tuned.text)


if __name__ == "__main__":
    result = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result
    jobs.leave(result)
