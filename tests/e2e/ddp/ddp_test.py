#!/usr/bin/env python3
"""examples/ddp_mpi under Lockstep: what the trace and the verdict must say about
a job whose steps, buckets, calls and slow ranks are known.

usage: ddp_test.py BUILD_DIR [unittest arguments]
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import h5py  # noqa: E402
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import rank_tables  # noqa: E402
import jobs  # noqa: E402
import numpy as np  # noqa: E402

BUILD, ENVIRONMENT = jobs.BUILD, jobs.ENVIRONMENT
TERMS = ["compute_ns", "blocked_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns", "exposed_copy_ns", "idle_ns"]


class Job:
    """One run of ddp_mpi and everything that came out of it."""

    def __init__(self, directory, arguments, ranks=4, traced=True):
        self.directory, self.ranks = pathlib.Path(directory), ranks
        self.run = self.directory / "run"
        mpirun = [*jobs.MPIRUN, "-np", str(ranks)]
        lockstep = [str(BUILD / "lockstep"), "run", "-o", str(self.run), "--"] if traced else []
        report = self.directory / "report.json"
        self.done = subprocess.run(
            mpirun + lockstep + [str(jobs.PROGRAMS / "ddp_mpi"), "--report", str(report), *arguments],
            capture_output=True, text=True, env=ENVIRONMENT, timeout=240)
        self.report = json.loads(report.read_text()) if report.exists() else None
        analysis = self.run / "analysis.json"
        self.analysis = json.loads(analysis.read_text()) if analysis.exists() else None

    def rank(self, rank):
        return rank_tables.open_file(self.run / "ranks" / f"rank-{rank:05}.h5")

    def timeline(self):
        return h5py.File(self.run / "timeline.h5")

    def verdict(self):
        return self.done.stderr


def ddp_buckets(tensor_bytes, first_limit, cap):
    """DDP's rule, written down a second time."""
    buckets, size = [], 0
    for tensor in reversed(tensor_bytes):
        size += tensor
        if size >= (cap if buckets else first_limit):
            buckets.append(size)
            size = 0
    return buckets + ([size] if size else [])


class Case(unittest.TestCase):
    arguments, ranks = [], 4

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="lockstep-ddp-")
        cls.job = Job(cls.temporary.name, cls.arguments, cls.ranks)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def setUp(self):
        self.assertEqual(self.job.done.returncode, 0, self.job.done.stderr)
        self.assertIsNotNone(self.job.analysis, self.job.done.stderr)

    # What holds for every run of this program.
    def check_sound(self):
        job, steps = self.job, self.job.report["steps"]
        trust = job.analysis["trust"]
        self.assertEqual(trust["unmatched_collectives"], 0)
        self.assertEqual(trust["clock_violations"], 0)
        self.assertEqual(trust["dropped"], 0)
        self.assertEqual(job.analysis["run"]["ranks"], self.ranks)
        self.assertEqual(job.analysis["run"]["ranks_missing"], [])
        with job.timeline() as timeline:
            self.assertEqual(timeline["steps/index"][:].tolist(), list(range(steps)))
            self.assertTrue(timeline["steps/complete"][:].all())
            for table, rows in (("step_ranks", steps * self.ranks), ("rank_totals", self.ranks)):
                columns = {name: data[:] for name, data in timeline[table].items()}
                self.assertEqual(len(columns["rank"]), rows)
                total = sum(columns[term].astype(np.int64) for term in TERMS)
                np.testing.assert_array_equal(total, columns["end_ns"] - columns["begin_ns"])

    def check_buckets(self):
        report = self.job.report
        expected = ddp_buckets(report["tensor_bytes"], int(report["first_bucket_mb"] * 2**20),
                               int(report["bucket_cap_mb"] * 2**20))
        self.assertEqual(report["bucket_bytes"], expected)
        for rank in range(self.ranks):
            with self.job.rank(rank) as file:
                kinds, sizes = file["collectives/kind"][:], file["collectives/bytes"][:]
                begin, seq = file["collectives/begin_ns"][:], file["collectives/seq"][:]
                steps = [(file["steps/begin_ns"][i], file["steps/end_ns"][i]) for i in range(len(file["steps/index"]))]
                order = np.argsort(seq)
                for low, high in steps:
                    inside = [i for i in order if low <= begin[i] < high]
                    self.assertEqual([int(sizes[i]) for i in inside], expected, f"rank {rank}")
                    self.assertEqual(len({int(kinds[i]) for i in inside}), 1)

    def check_calls(self):
        ops = jobs.mpi_ops()
        # Init and Finalize are marks of the process, size and rank queries are not recorded.
        counted = ["MPI_Allreduce", "MPI_Iallreduce", "MPI_Testsome", "MPI_Waitall", "MPI_Gather", "MPI_Barrier"]
        for rank, own in enumerate(self.job.report["mpi_calls"]):
            with self.job.rank(rank) as file:
                op, count = file["mpi_calls/op"][:], file["mpi_calls/count"][:]
                for name in counted:
                    self.assertEqual(int(count[op == ops[name]].sum()), own[name], f"{name} on rank {rank}")


class Healthy(Case):
    arguments = ["--steps", "30", "--bucket-cap-mb", "0.25", "--check", "--print-buckets"]

    def test_sound(self):
        self.check_sound()

    def test_buckets(self):
        self.check_buckets()
        self.assertGreaterEqual(len(self.job.report["bucket_bytes"]), 3)

    def test_calls(self):
        self.check_calls()

    def test_training_is_real(self):
        report = self.job.report
        self.assertLess(report["final_loss"], 0.5 * report["initial_loss"])
        self.assertTrue(report["check_passed"])
        self.assertTrue(report["parameters_identical"])

    def test_same_with_and_without_lockstep(self):
        with tempfile.TemporaryDirectory(prefix="lockstep-ddp-") as directory:
            bare = Job(directory, self.arguments, self.ranks, traced=False)
        self.assertEqual(bare.done.returncode, 0, bare.done.stderr)
        self.assertEqual(bare.report["parameter_hash"], self.job.report["parameter_hash"])

        def without_time(text):
            return [line for line in text.splitlines() if "step_ms=" not in line]

        self.assertEqual(without_time(bare.done.stdout), without_time(self.job.done.stdout))

    def test_lost_row_is_one_unmatched_collective(self):
        with tempfile.TemporaryDirectory(prefix="lockstep-ddp-") as directory:
            copy = pathlib.Path(directory) / "run"
            shutil.copytree(self.job.run, copy, symlinks=True)
            for made in ("timeline.h5", "analysis.json"):
                (copy / made).unlink()
            with h5py.File(copy / "ranks/rank-00001.h5", "r+") as file:
                table = file["collectives"]
                gone = len(table["seq"]) // 2
                for name in list(table):
                    old = table[name]
                    values, attributes, chunks = np.delete(old[:], gone), dict(old.attrs), old.chunks
                    del table[name]
                    new = table.create_dataset(name, data=values, chunks=chunks, maxshape=(None,), shuffle=True,
                                               compression="gzip", compression_opts=1)
                    new.attrs.update(attributes)
                if "rows" in table.attrs:
                    table.attrs["rows"] = type(table.attrs["rows"])(len(values))
            done = subprocess.run([BUILD / "lockstep", "analyze", copy], capture_output=True, text=True,
                                  env=ENVIRONMENT, timeout=120)
            self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
            trust = json.loads((copy / "analysis.json").read_text())["trust"]
            self.assertEqual(trust["unmatched_collectives"], 1)


class OverlapOff(Case):
    arguments, ranks = ["--steps", "15", "--bucket-cap-mb", "0.5", "--overlap", "off"], 3

    def test_sound(self):
        self.check_sound()
        self.check_buckets()
        self.check_calls()

    def test_nothing_is_hidden(self):
        self.assertEqual(self.job.analysis["summary"]["hidden_comm_ns"], 0)
        self.assertEqual(self.job.analysis["summary"]["overlap_fraction"], 0)


class MovedOnlyInWait(Case):
    arguments = ["--steps", "30", "--progress", "none", "--bucket-cap-mb", "0.5", "--width", "512"]

    def test_sound(self):
        self.check_sound()
        self.check_buckets()

    def test_the_verdict_says_so(self):
        findings = " ".join(f["headline"] + " " + f["evidence"] for f in self.job.analysis["findings"])
        self.assertRegex(findings, r"(?i)posted early.*wait")
        self.assertRegex(self.job.verdict(), r"(?i)moved only in|moves only in|posted early")

    # What is certain: nothing was hidden, but for the posting calls' own progress.
    def test_no_overlap_is_claimed(self):
        self.assertLess(self.job.analysis["summary"]["overlap_fraction"], 0.05)


class HelperThread(Case):
    arguments = ["--steps", "30", "--progress", "thread", "--bucket-cap-mb", "0.5", "--width", "512"]

    def test_sound(self):
        self.check_sound()
        self.check_buckets()
        self.check_calls()

    def test_overlap_is_bracketed(self):
        summary = self.job.analysis["summary"]
        self.assertIsNotNone(summary["overlap_low"])
        self.assertIsNotNone(summary["overlap_high"])
        self.assertLess(summary["overlap_low"], summary["overlap_high"])
        self.assertGreater(summary["overlap_high"], 0)
        self.assertLessEqual(summary["overlap_low"], summary["overlap_fraction"])
        self.assertLessEqual(summary["overlap_fraction"], summary["overlap_high"])


class Straggler(Case):
    # Steps long enough for 30 % of one to stand far above the noise of shared cores.
    arguments = ["--steps", "40", "--step-ms", "100", "--bucket-cap-mb", "0.25", "--slow-rank", "2:1.3"]

    def test_sound(self):
        self.check_sound()

    def test_the_verdict_names_it(self):
        self.assertRegex(self.job.verdict(), r"Rank 2 holds|[Rr]ank 2 ")
        straggler = [f for f in self.job.analysis["findings"] if "rank 2" in f["headline"].lower()]
        self.assertTrue(straggler, self.job.analysis["findings"])
        # 30 ms of compute are lost; the healthy job would expose a little more communication.
        self.assertGreater(straggler[0]["saves_ns_per_step"], 22e6)
        self.assertLess(straggler[0]["saves_ns_per_step"], 36e6)

    def test_it_arrives_last(self):
        last = {row["rank"]: row["last"] for row in self.job.analysis["arrivals"]}
        self.assertEqual(max(last, key=last.get), 2)


class CommandLine(unittest.TestCase):
    def job(self, *arguments):
        with tempfile.TemporaryDirectory(prefix="lockstep-ddp-") as directory:
            return Job(directory, ["--steps", "3", "--step-ms", "3", *arguments], 2, traced=False)

    def test_the_last_value_counts(self):
        self.assertEqual(self.job("--bucket-cap-mb", "1", "--bucket-cap-mb", "0.5").report["bucket_cap_mb"], 0.5)

    def test_slow_ranks(self):
        self.assertEqual(self.job("--slow-rank", "0:1.5", "--slow-rank", "1:2").report["slow"], [1.5, 2])
        self.assertEqual(self.job("--slow-rank", "0:1.5,1:2").report["slow"], [1.5, 2])

    def test_nonsense_is_refused(self):
        for wrong in (["--slow-rank", "7:2"], ["--slow-rank", "x"], ["--slow-rank", "0:0.5"], ["--steps", "0"],
                      ["--progress", "magic"]):
            job = self.job(*wrong)
            self.assertEqual(job.done.returncode, 2, job.done.stderr)
            self.assertIsNone(job.report)

    def test_real_work(self):
        job = self.job("--work", "real", "--batch", "8", "--check", "--slow-rank", "1:2.5")
        self.assertEqual(job.done.returncode, 0, job.done.stderr)
        self.assertTrue(job.report["check_passed"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
