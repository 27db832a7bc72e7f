"""Real traces of others, imported and analysed: real_test.py BUILD_DIR SHARED_DIR

Row counts against an independent count of the JSON; the terms of each rank, with HTA's classes,
against values computed from the JSON by other code, to the nanosecond."""

import collections
import glob
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from decimal import Decimal

BUILD = pathlib.Path(sys.argv[1]).resolve()
SHARED = pathlib.Path(sys.argv[2] or "/nonexistent")
LOCKSTEP = str(BUILD / "lockstep")
if not os.path.exists(LOCKSTEP):
    print("skipped: lockstep is not built")
    sys.exit(77)
if not (SHARED / "traces").is_dir():
    print("skipped: no reference traces (LOCKSTEP_SHARED_DIR)")
    sys.exit(77)
try:
    import h5py  # noqa: F401
except ImportError:
    print("skipped: no h5py")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402

SETS = {"param_dlrm_8rank": 8, "tracelens_mi300_resnet_rank0of8": 1, "hta_nccl_args_rank0of2": 1,
        "hta_df_index_rank1of2": 1, "hta_cp_alexnet": 1}


class Real(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-import-real-"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir, ignore_errors=True)

    def lockstep(self, *words, codes=(0,)):
        done = subprocess.run([LOCKSTEP, *map(str, words)], capture_output=True, text=True, timeout=200, cwd=self.dir,
                              env=jobs.ENVIRONMENT)
        self.assertIn(done.returncode, codes, done.stdout + done.stderr)
        return done

    def run_of(self, name):
        run = self.dir / name
        if not run.exists():
            files = sorted(glob.glob(str(SHARED / "traces" / name / "*.json.gz")))
            self.assertEqual(len(files), SETS[name])
            self.lockstep("import", "kineto", *files, "-o", run, codes=(0, 3))
        return run

    def ranks(self, name):
        files = [jobs.RankFile(path) for path in sorted((self.run_of(name) / "ranks").glob("rank-*.h5"))]
        self.assertEqual(len(files), SETS[name])
        return {pathlib.Path(file.meta["source_file"]).name: file for file in files}

    def test_rows(self):
        for name in SETS:
            for source, file in self.ranks(name).items():
                with gzip.open(SHARED / "traces" / name / source, "rt") as text:
                    trace = json.load(text)
                info = trace.get("distributedInfo", {})
                self.assertEqual(int(file.meta["rank"]), info.get("rank", 0))
                events = [e for e in trace["traceEvents"] if e.get("ph") in ("X", "i")]
                count = collections.Counter(e.get("cat") for e in events)
                self.assertEqual(file.rows("kernels"), count["kernel"], source)
                self.assertEqual(file.rows("copies"), count["gpu_memcpy"] + count["gpu_memset"], source)
                self.assertEqual(file.rows("sync"), count["cuda_sync"], source)
                self.assertEqual(file.rows("api"), count["cuda_runtime"] + count["cuda_driver"], source)
                self.assertEqual(file.rows("ranges"), count["cpu_op"] + count["user_annotation"], source)
                self.assertEqual(file.rows("gpu_memory"), sum(e["name"] == "[memory]" for e in events), source)
                steps = {e["name"] for e in events if e.get("cat") in ("user_annotation", "cpu_op")
                         and e["name"].startswith("ProfilerStep#")}
                self.assertEqual({"ProfilerStep#%d" % i for i in file.column("steps", "index")}, steps, source)
                kernels = [e for e in events if e.get("cat") == "kernel"]
                self.assertEqual(sum(int(b) for b in file.column("kernels", "duration_ns")),
                                 sum(round(e["dur"] * 1000) for e in kernels), source)
                self.assertEqual(sum(int(w) for w in file.column("kernels", "work")),
                                 sum("nccl" in e["name"] for e in kernels), source)
                base = trace.get("baseTimeNanoseconds", 0)
                self.assertEqual(int(min(file.column("kernels", "begin_ns"))),
                                 min(int(Decimal(repr(e["ts"])) * 1000) for e in kernels) + base)

    def test_whole_window(self):
        text = (SHARED / "expected" / "whole_window.jsonl").read_text()
        expected = {row["file"]: row for row in map(json.loads, text.splitlines())}
        seen = 0
        for name in SETS:
            sources = {int(file.meta["rank"]): source for source, file in self.ranks(name).items()}
            done = self.lockstep("analyze", self.run_of(name), "--classes", "hta", "--json", "-", codes=(0, 3))
            for rank in json.loads(done.stdout)["ranks"]:
                row = expected.get(sources[rank["rank"]])
                if row is None:
                    continue
                seen += 1
                got = {key: rank[key] for key in ("span_ns", "compute_ns", "comm_ns", "overlap_ns", "idle_ns")}
                self.assertEqual(got, {key: row[key] for key in got}, row["file"])
                self.assertAlmostEqual(rank["overlap_fraction"], row["overlap_fraction"], places=9)
        self.assertEqual(seen, len(expected))

    def test_dlrm(self):
        files = self.ranks("param_dlrm_8rank")
        for file in files.values():
            rows = file.tables["collectives"]
            self.assertEqual([int(k) for k in rows["kind"]], [4, 4, 4, 4, 1, 4, 1, 1])
            self.assertEqual([int(b) for b in rows["bytes"]],
                             [4 * 6144, 8 * 24, 4 * 384, 4 * 3392, 4 * 394241, 4 * 6144, 4 * 112, 4 * 226960])
        analysis = json.loads(self.lockstep("analyze", self.run_of("param_dlrm_8rank"), "--json", "-", codes=(0, 3)).stdout)
        self.assertEqual(sum(row["count"] for row in analysis["collectives"]), 8)
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)

    def test_kinds(self):
        """Kinds and sizes that the traces' own arguments give, on the kernel or on its operation."""
        names = {"allreduce": 1, "broadcast": 6}
        sizes = {"Float": 4, "Long": 8, "BFloat16": 2}
        for name in ("hta_nccl_args_rank0of2", "tracelens_mi300_resnet_rank0of8"):
            (source, file), = self.ranks(name).items()
            with gzip.open(SHARED / "traces" / name / source, "rt") as text:
                events = json.load(text)["traceEvents"]
            expected = collections.Counter((names[e["args"]["Collective name"]],
                                            e["args"]["In msg nelems"] * sizes[e["args"]["dtype"]])
                                           for e in events if e["name"] == "record_param_comms"
                                           and e["args"].get("Collective name") in names)
            got = collections.Counter(zip(map(int, file.column("collectives", "kind")),
                                          map(int, file.column("collectives", "bytes"))))
            # Kernels launched before the trace began are there without their operation.
            missing = expected - got
            self.assertEqual(sum(missing.values()), 0, (name, missing))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
