#!/usr/bin/env python3
"""examples/fsdp_mpi under Lockstep: what the trace and the verdict must say about
a job whose steps, units, calls and faults are known.

usage: fsdp_test.py BUILD_DIR [unittest arguments]
"""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402
import numpy as np  # noqa: E402

TERMS = ["compute_ns", "blocked_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns", "exposed_copy_ns", "idle_ns"]
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = 1, 2, 3  # CollectiveKind
BLOCKING, NON_BLOCKING = 0, 1


class Job:
    """One run of fsdp_mpi and everything that came out of it."""

    def __init__(self, directory, arguments, ranks, traced=True):
        self.directory, self.ranks = pathlib.Path(directory), ranks
        self.run = jobs.Run(self.directory / "run")
        lockstep = [jobs.LOCKSTEP, "run", "-o", self.run.directory, "--"] if traced else []
        report, self.saved = self.directory / "report.json", self.directory / "parameters"
        self.done = jobs.run([*jobs.MPIRUN, "-np", ranks, *lockstep, jobs.BUILD / "fsdp_mpi", "--report", report,
                              "--save", self.saved, *arguments], cwd=directory)
        self.report = json.loads(report.read_text()) if report.exists() else None
        analysis = self.run.directory / "analysis.json"
        self.analysis = json.loads(analysis.read_text()) if analysis.exists() else None


def collectives_of_step(unit_bytes, prefetch):
    """(kind, mode, bytes) in order, written down a second time."""
    def gather(unit, mode):
        return ALL_GATHER, mode, unit_bytes[unit]

    units, found = len(unit_bytes), []
    for unit in range(units):
        if unit == 0 or not prefetch:
            found.append(gather(unit, BLOCKING))
        if prefetch and unit + 1 < units:
            found.append(gather(unit + 1, NON_BLOCKING))
    for unit in reversed(range(units)):
        if unit == units - 1 or not prefetch:
            found.append(gather(unit, BLOCKING))
        if prefetch and unit > 0:
            found.append(gather(unit - 1, NON_BLOCKING))
        found.append((REDUCE_SCATTER, NON_BLOCKING, unit_bytes[unit]))
    return found


class Case(unittest.TestCase):
    arguments, ranks = [], 4

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="lockstep-fsdp-")
        cls.job = Job(cls.temporary.name, cls.arguments, cls.ranks)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def setUp(self):
        self.assertEqual(self.job.done.returncode, 0, self.job.done.stderr)
        self.assertIsNotNone(self.job.analysis, self.job.done.stderr)

    # What holds for every run of this program.
    def check_sound(self):
        job = self.job
        trust = job.analysis["trust"]
        self.assertEqual(trust["unmatched_collectives"], 0)
        self.assertEqual(trust["clock_violations"], 0)
        self.assertEqual(trust["dropped"], 0)
        self.assertEqual(job.analysis["run"]["ranks"], self.ranks)
        self.assertEqual(len(job.analysis["steps"]), job.report["steps"])
        for row in [*job.analysis["ranks"], *(row for step in job.analysis["steps"] for row in step["ranks"])]:
            span = row["span_ns"] if "span_ns" in row else row["end_ns"] - row["begin_ns"]
            self.assertEqual(sum(row[term] for term in TERMS), span)

    def check_collectives(self):
        expected = collectives_of_step(self.job.report["unit_bytes"], self.job.report["prefetch"])
        for name, file in self.job.run.files().items():
            table = file.tables["collectives"]
            order = np.argsort(table["seq"])
            for low, high in zip(file.column("steps", "begin_ns"), file.column("steps", "end_ns")):
                inside = [i for i in order if low <= table["begin_ns"][i] < high]
                found = [(int(table["kind"][i]), int(table["mode"][i]), int(table["bytes"][i])) for i in inside]
                self.assertEqual(found, expected, name)

    def check_calls(self):
        # Init and Finalize are marks of the process, size and rank queries are not recorded.
        unseen = {"MPI_Init_thread", "MPI_Finalize", "MPI_Comm_rank", "MPI_Comm_size"}
        for own, (name, file) in zip(self.job.report["mpi_calls"], self.job.run.files().items()):
            found = file.calls
            for function, count in own.items():
                if function not in unseen:
                    self.assertEqual(found.get(function, 0), count, f"{function} in {name}")

    def check_phases(self):
        steps = self.job.report["steps"]
        for name, file in self.job.run.files().items():
            found = file.ranges
            for phase in ("input", "forward", "backward", "optimizer"):
                self.assertEqual(found.get(phase), steps, f"{phase} in {name}")

    def check_same_without_lockstep(self):
        with tempfile.TemporaryDirectory(prefix="lockstep-fsdp-") as directory:
            bare = Job(directory, self.arguments, self.ranks, traced=False)
            self.assertEqual(bare.done.returncode, 0, bare.done.stderr)
            self.assertEqual(bare.saved.read_bytes(), self.job.saved.read_bytes())
        self.assertEqual(bare.report["parameter_hash"], self.job.report["parameter_hash"])

        def without_time(text):
            return [line for line in text.splitlines() if b"step_ms=" not in line]

        self.assertEqual(without_time(bare.done.stdout), without_time(self.job.done.stdout))


class Prefetch(Case):
    arguments = ["--steps", "20", "--check"]

    def test_sound(self):
        self.check_sound()
        self.check_collectives()
        self.check_calls()
        self.check_phases()

    def test_training_is_real(self):
        report = self.job.report
        self.assertLess(report["final_loss"], 0.5 * report["initial_loss"])
        self.assertTrue(report["check_passed"])
        self.assertTrue(report["parameters_identical"])
        # Parts of equal size: whole units are padded to a multiple of the ranks.
        self.assertTrue(all(size % (4 * self.ranks) == 0 for size in report["unit_bytes"]))

    def test_same_with_and_without_lockstep(self):
        self.check_same_without_lockstep()


# Three ranks divide no layer evenly: padding.
class NoPrefetch(Case):
    arguments, ranks = ["--steps", "12", "--prefetch", "0", "--check"], 3

    def test_sound(self):
        self.check_sound()
        self.check_collectives()
        self.check_calls()
        self.assertTrue(self.job.report["check_passed"])

    def test_same_with_and_without_lockstep(self):
        self.check_same_without_lockstep()


class HelperThread(Case):
    arguments, ranks = ["--steps", "12", "--progress", "thread"], 2

    def test_sound(self):
        self.check_sound()
        self.check_collectives()
        self.check_calls()
        self.assertGreater(self.job.report["mpi_calls"][0]["MPI_Testsome"], 0)


class CommandLine(unittest.TestCase):
    def test_nonsense_is_refused(self):
        for wrong in ("--slow-rank=7:2", "--slow-rank=0:0.5", "--slow-rank=0:2x", "--slow-input=1", "--stall=0:5",
                      "--stall=5:0:1", "--late-start=x:1", "--slow-link=0-0:5", "--slow-link=0:5", "--prefetch=2"):
            # One process: no launcher is needed to be told so.
            done = jobs.run([jobs.BUILD / "fsdp_mpi", wrong], cwd="/")
            self.assertEqual(done.returncode, 2, (wrong, done.stderr))
            self.assertEqual(done.stdout, b"", wrong)
            self.assertIn(b"--", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
