#!/usr/bin/env python3
"""lockstep-merge-mpi under real mpirun, shards, digests, memory, --window hta.

usage: merge_test.py BUILD SHARED_DIR CASE [-v]
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import mpi_sessions  # noqa: E402

BUILD, SHARED = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2] or "/nonexistent")
LOCKSTEP, MERGE_MPI = str(BUILD / "lockstep"), str(BUILD / "lockstep-merge-mpi")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "OMPI_", "PMIX_"))} | mpi_sessions.ENVIRONMENT
MPIRUN = ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe"]

# Several machines, groups, posted and blocking operations, messages, a missing rank: every table has rows.
SPEC = """ranks 7
nodes 3
steps 25
warmup 2
seed 5
jitter 1%
network alpha=20us bandwidth=4GB/s skew=2us
progress test
comm tp stride=2
clock node=1 offset=3s drift=9ppm
clock node=2 offset=-5s drift=-7ppm
slow rank=4 factor=1.1
missing rank=6
step
  input 500us
  forward 2ms
  allreduce 64KiB comm=tp
  backward 6ms buckets=1MiB,4MiB
  waitall
  ring 64KiB
  optimizer 1ms
end
"""


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory(prefix="lockstep-merge-")
        self.addCleanup(self.dir.cleanup)
        self.path = pathlib.Path(self.dir.name)

    def call(self, words, codes=(0, 3), **more):
        done = subprocess.run([str(w) for w in words], env=ENVIRONMENT, capture_output=True, text=True, **more)
        self.assertIn(done.returncode, codes, f"{words}: {done.stdout}{done.stderr}")
        return done

    def make(self, spec=SPEC, name="run", *flags):
        (self.path / (name + ".run")).write_text(spec)
        self.call([BUILD / "make_run", self.path / (name + ".run"), self.path / name, *flags], (0,))
        return self.path / name

    def digest(self, run):
        """Digests of the timeline's datasets, and of what it says."""
        info = json.loads(self.call([LOCKSTEP, "info", run / "timeline.h5", "--digest", "--json", "-"]).stdout)
        file = info["files"][0]
        self.assertGreater(len(file["tables"]), 10)
        return {name: table["columns"] for name, table in file["tables"].items()}, file["digest"]

    def analysis(self, run):
        out = self.path / "analysis.json"
        self.call([LOCKSTEP, "analyze", run, "--json", out])
        return out.read_bytes()

    def merge_mpi(self, run, processes, *flags, codes=(0, 3)):
        return self.call([*MPIRUN, "-np", processes, MERGE_MPI, run, "-j", "1", *flags], codes, timeout=120)


class Processes(Case):
    def test_any_number_of_processes_and_threads_gives_the_same(self):
        run = self.make()
        alone = self.call([LOCKSTEP, "merge", run, "-j", "1"])
        digest, analysis = self.digest(run), self.analysis(run)
        self.assertIn("collective_ranks", digest[0])
        for jobs in (2, 4):
            self.call([LOCKSTEP, "merge", run, "-j", jobs])
            self.assertEqual(self.digest(run), digest, f"-j {jobs}")
        for processes in (1, 2, 4):
            merged = self.merge_mpi(run, processes)
            self.assertEqual(merged.returncode, alone.returncode)
            self.assertEqual(merged.stdout.splitlines()[0], alone.stdout.splitlines()[0])
            self.assertEqual(len(list((run / "timeline-shards").iterdir())), processes)
            self.assertEqual(self.digest(run), digest, f"{processes} processes")
            self.assertEqual(self.analysis(run), analysis, f"{processes} processes")
        # More processes than ranks, and other flags.
        self.merge_mpi(run, 9, "--steps", "5:10")
        steps = self.digest(run)
        self.assertNotEqual(steps, digest)
        self.call([LOCKSTEP, "merge", run, "--steps", "5:10"])
        self.assertEqual(self.digest(run), steps)
        self.assertFalse((run / "timeline-shards").exists(), "shards of an earlier merge stay behind")

    def test_wrong_words_fail_once(self):
        done = self.merge_mpi(self.path / "absent", 2, codes=(2,))
        self.assertEqual(done.stderr.count("error: no such run directory"), 1, done.stderr)


class Shards(Case):
    def test_missing_or_changed_parts_are_named(self):
        run = self.make(SPEC.replace("missing rank=6\n", ""))
        self.merge_mpi(run, 2)
        shard = run / "timeline-shards" / "shard-00001.h5"
        # For everybody else the same rows are there.
        import h5py
        with h5py.File(run / "timeline.h5", "r") as file:
            virtual = file["collective_ranks"]["arrival_ns"][:]
        kept = shard.read_bytes()

        def info():
            return self.call([LOCKSTEP, "info", run / "timeline.h5", "--digest"], (0, 2, 3))

        self.assertEqual(info().returncode, 0)
        shard.unlink()
        missing = info()
        self.assertNotEqual(missing.returncode, 0)
        self.assertIn("shard-00001.h5", missing.stderr)
        self.assertIn("is missing", missing.stderr)
        # Another merge's shard of as many rows.
        with h5py.File(run / "timeline-shards" / "other.h5", "w") as _:
            pass
        shutil.move(run / "timeline-shards" / "other.h5", shard)
        self.assertIn("shard-00001.h5", info().stderr)
        shard.write_bytes(kept)
        with h5py.File(shard, "r+") as file:
            file["collective_ranks"]["arrival_ns"][0] += 1
        changed = info()
        self.assertNotEqual(changed.returncode, 0)
        self.assertIn("other rows", changed.stderr)
        # analyze merges again rather than believing it.
        self.call([LOCKSTEP, "analyze", run])
        with h5py.File(run / "timeline.h5", "r") as file:
            self.assertEqual(list(file["collective_ranks"]["arrival_ns"][:]), list(virtual))


class Names(Case):
    def test_file_names_do_not_matter(self):
        run = self.make(SPEC.replace("missing rank=6\n", ""))
        self.call([LOCKSTEP, "merge", run])
        digest, analysis = self.digest(run)[1], self.analysis(run)
        total = json.loads(self.call([LOCKSTEP, "info", run, "--digest", "--json", "-"]).stdout)["digest"]
        ranks = run / "ranks"
        for i, name in enumerate(sorted(os.listdir(ranks))):
            (ranks / name).rename(ranks / f"moved-{(i * 5 + 3) % 7}.h5")
        for i in range(7):
            (ranks / f"moved-{i}.h5").rename(ranks / f"rank-{i:05}.h5")
        self.call([LOCKSTEP, "merge", run])
        self.assertEqual(self.digest(run)[1], digest)
        self.assertEqual(self.analysis(run), analysis)
        self.assertEqual(json.loads(self.call([LOCKSTEP, "info", run, "--digest", "--json", "-"]).stdout)["digest"], total)


class Memory(Case):
    def test_a_long_rank_takes_no_more_than_a_short_one(self):
        """Compute and sends of no message: rows of mpi_calls and ranges, which merge keeps nothing of."""
        spec = """ranks 2
steps 4
bursts off
step
  repeat $n
    compute 20us name=x
    other 5us
  end
  allreduce 1KiB
end
"""
        peak = {}
        for n in (20000, 80000):  # Both have tables of more than a chunk, so that both are read in the same way.
            run = self.make("let n %d\n%s" % (n, spec), f"run{n}")
            child = subprocess.Popen([LOCKSTEP, "merge", run, "-j", "1"], env=ENVIRONMENT, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            self.assertIn(child.returncode, (0, 3))
            peak[n] = usage.ru_maxrss
        # 480,000 rows of two tables more; held whole they would be tens of MB.
        self.assertLess(peak[80000] - peak[20000], 12 * 1024, peak)


class Hta(Case):
    """The window of Holistic Trace Analysis, its values: without its rounding of times that are no whole us."""

    EXPECTED = {
        "hta_df_index_rank1of2": (1396669000, 643612000, 496485000, 238274000, 0),
        "hta_nccl_args_rank0of2": (435587561, 336419714, 76935828, 24289050, 3585679),
        "tracelens_mi300_resnet_rank0of8": (56517603, 283536, 19234094, 47200310, 11917173),
    }

    def test_totals(self):
        for name, (span, idle, compute, comm, overlap) in self.EXPECTED.items():
            run = self.path / name
            self.call([LOCKSTEP, "import", "kineto", *(SHARED / "traces" / name).glob("*.json.gz"), "-o", run])
            out = self.path / (name + ".json")
            self.call([LOCKSTEP, "analyze", run, "--classes", "hta", "--window", "hta", "--json", out])
            rank = json.loads(out.read_text())["ranks"][0]
            self.assertEqual((rank["span_ns"], rank["idle_ns"], rank["compute_ns"], rank["comm_ns"], rank["overlap_ns"]),
                             (span, idle, compute, comm, overlap), name)
        # The same numbers as HTA's own, where its times are exact.
        theirs = json.loads((SHARED / "expected/hta/hta_df_index_rank1of2/temporal_breakdown.json").read_text())[0]
        self.assertEqual(self.EXPECTED["hta_df_index_rank1of2"][:3],
                         tuple(int(theirs[k] * 1000) for k in ("kernel_time(us)", "idle_time(us)", "compute_time(us)")))

    def test_one_step_keeps_everything(self):
        run = self.path / "dlrm"
        self.call([LOCKSTEP, "import", "kineto", *(SHARED / "traces/param_dlrm_8rank").glob("*.json.gz"), "-o", run])
        out = self.path / "dlrm.json"
        self.call([LOCKSTEP, "analyze", run, "--classes", "hta", "--window", "hta", "--json", out])
        breakdown = json.loads((SHARED / "expected/hta/param_dlrm_8rank/temporal_breakdown.json").read_text())
        overlap = json.loads((SHARED / "expected/hta/param_dlrm_8rank/comm_comp_overlap.json").read_text())
        ranks = json.loads(out.read_text())["ranks"]
        self.assertEqual(len(ranks), 8)
        for rank, times, hidden in zip(ranks, breakdown, overlap):
            self.assertEqual(rank["rank"], times["rank"])
            for ours, theirs in (("span_ns", "kernel_time(us)"), ("idle_ns", "idle_time(us)"),
                                 ("compute_ns", "compute_time(us)")):
                self.assertEqual(rank[ours], round(times[theirs] * 1000))
            self.assertAlmostEqual(100 * rank["overlap_fraction"], hidden["comp_comm_overlap_pctg"], places=9)


if __name__ == "__main__":
    case = sys.argv[3]
    if case in ("Processes", "Shards") and not os.path.exists(MERGE_MPI):
        skip("lockstep-merge-mpi is built only with MPI")
    if case == "Hta" and not (SHARED / "traces").is_dir():
        skip("no reference traces (LOCKSTEP_SHARED_DIR)")
    unittest.main(argv=[sys.argv[0], *sys.argv[4:], case])
