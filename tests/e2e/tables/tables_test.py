#!/usr/bin/env python3
"""lockstep analyze --table: tables_test.py BUILD SHARED_DIR CASE

Real       traces of others, imported; every number against kineto_oracle.py, and that against HTA.
Generated  jobs of MPI without a GPU: every table says something sensible.
"""

import csv
import glob
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import kineto_oracle as oracle  # noqa: E402

BUILD = pathlib.Path(sys.argv[1]).resolve()
SHARED = pathlib.Path(sys.argv[2]).resolve()
LOCKSTEP = str(BUILD / "lockstep")
ENVIRONMENT = {k: v for k, v in os.environ.items()
               if not k.startswith(("LOCKSTEP_", "OMPI_", "PMIX_", "SLURM_")) and k not in ("RANK", "WORLD_SIZE")}
SETS = ["param_dlrm_8rank", "hta_df_index_rank1of2", "hta_nccl_args_rank0of2", "tracelens_mi300_resnet_rank0of8"]
HTA_TYPES = {"COMPUTATION": "compute", "COMMUNICATION": "communication", "MEMORY": "memory",
             "COMPUTATION overlapping COMMUNICATION": "compute + communication",
             "COMPUTATION overlapping MEMORY": "compute + memory",
             "COMMUNICATION overlapping MEMORY": "communication + memory"}
EXPOSED = ("exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns")
OP_COLUMNS = ("calls", "cpu_self_ns", "cpu_total_ns", "gpu_self_ns", "gpu_total_ns", "kernels")
TABLES = ["kernels", "breakdown", "ops", "ranges", "memory", "sequences", "groups", "idle", "launches", "queue",
          "copies", "critical-path", "waits"]


TRAINING = """ranks 2
steps 6
jitter 1%
network alpha=20us bandwidth=5GB/s
slow rank=1 factor=1.2
step
  input 500us
  forward 4ms
  backward 8ms buckets=1MiB,1MiB
  waitall
  optimizer 1ms
end
"""
# Receives that are posted before and after their send, blocking and not, on two communicators.
MESSAGES = """ranks 2
steps 8
jitter 1%
network alpha=20us bandwidth=5GB/s
comm other block=2
late rank=1 by=1ms
step
  compute 2ms
  ring 512KiB waits=recv,send
  send 512KiB to=1 as=m on=1:0
  compute 1ms
  recv m on=1:1
  send 512KiB to=-1 as=n on=1:1
  recv n posted on=1:0
  ring 512KiB
  allreduce 512KiB comm=other
  barrier
end
"""


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def lockstep(*words, ok=(0, 3)):
    done = subprocess.run([LOCKSTEP, *map(str, words)], env=ENVIRONMENT, capture_output=True, text=True, timeout=280)
    if ok is not None and done.returncode not in ok:
        raise AssertionError("lockstep %s: %d\n%s%s" % (" ".join(map(str, words)), done.returncode, done.stdout,
                                                       done.stderr))
    return done


class Answer:
    """A table as JSON: rows as dictionaries."""

    def __init__(self, run, name, *flags):
        flags = ["--table", name, "--top", 0, "--json", "-", "-q", *flags]
        self.json = json.loads(lockstep("analyze", run, *flags).stdout)
        columns = [column["name"] for column in self.json["columns"]]
        self.rows = [dict(zip(columns, row)) for row in self.json["rows"]]
        self.notes = self.json["notes"]

    def of(self, rank, *keys):
        return {tuple(r[k] for k in keys) if len(keys) > 1 else r[keys[0]]: r for r in self.rows if r["rank"] == rank}


class Real(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not (SHARED / "traces").is_dir():
            skip("no reference traces (LOCKSTEP_SHARED_DIR)")
        cls.directory = tempfile.TemporaryDirectory()
        cls.runs, cls.traces = {}, {}
        for name in SETS:
            files = sorted(glob.glob(str(SHARED / "traces" / name / "*.json.gz")))
            run = str(pathlib.Path(cls.directory.name) / name)
            lockstep("import", "kineto", *files, "-o", run, "-q")
            cls.runs[name] = run
            cls.traces[name] = [oracle.Trace(file) for file in files]

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def test_oracle_is_htas_where_hta_counts(self):
        """With HTA's rounding and window the oracle gives HTA's own numbers."""
        for name in SETS:
            with self.subTest(name):
                traces = self.traces[name]
                rows = json.loads((SHARED / "expected/hta" / name / "gpu_kernel_breakdown_0.json").read_text())
                expected = {HTA_TYPES[row["kernel_type"]]: row["sum"] for row in rows if row["sum"]}
                self.assertEqual(oracle.hta_breakdown(traces), expected)

    def test_breakdown(self):
        for name in SETS:
            with self.subTest(name):
                run, traces = self.runs[name], self.traces[name]
                table = Answer(run, "breakdown", "--classes", "hta", "--rank", "all")
                for trace in traces:
                    rows = {activity: row["time_ns"] for activity, row in table.of(trace.rank, "activity").items()}
                    self.assertEqual(rows, oracle.breakdown(trace.gpu()), "rank %d" % trace.rank)
                # HTA's window, without its rounding.
                table = Answer(run, "breakdown", "--classes", "hta", "--window", "hta", "--rank", "all")
                for trace, events in zip(traces, oracle.htas_window(traces)):
                    rows = {activity: row["time_ns"] for activity, row in table.of(trace.rank, "activity").items()}
                    self.assertEqual(rows, oracle.breakdown(events), "rank %d" % trace.rank)
        # The pooled row of whole us is HTA's own.
        rows = json.loads((SHARED / "expected/hta/param_dlrm_8rank/gpu_kernel_breakdown_0.json").read_text())
        pooled = Answer(self.runs["param_dlrm_8rank"], "breakdown", "--classes", "hta").of("all", "activity")
        self.assertEqual({a: r["time_ns"] for a, r in pooled.items()},
                         {HTA_TYPES[row["kernel_type"]]: 1000 * row["sum"] for row in rows})
        for row in rows:
            self.assertAlmostEqual(pooled[HTA_TYPES[row["kernel_type"]]]["share_of_busy"] * 100, row["percentage"], 9)

    def test_kernels(self):
        for name in SETS:
            with self.subTest(name):
                run, traces = self.runs[name], self.traces[name]
                table = Answer(run, "kernels", "--rank", "all")
                for trace in traces:
                    expected = oracle.kernels(trace)
                    rows = table.of(trace.rank, "kernel")
                    self.assertEqual(set(rows), set(expected))
                    for kernel, values in expected.items():
                        self.assertEqual({k: rows[kernel][k] for k in values}, values, kernel)

    def test_ops(self):
        for name in SETS:
            with self.subTest(name):
                run, traces = self.runs[name], self.traces[name]
                table = Answer(run, "ops", "--rank", "all")
                for trace in traces:
                    expected, outside, no_launch = oracle.ops(trace)
                    rows = table.of(trace.rank, "op")
                    for other, ns in (("(outside operators)", outside), ("(launch not in the trace)", no_launch)):
                        self.assertEqual(rows.pop(other, {"gpu_self_ns": 0})["gpu_self_ns"], ns)
                    self.assertEqual(set(rows), set(expected))
                    for op, values in expected.items():
                        for column in OP_COLUMNS:
                            self.assertEqual(rows[op][column], values[column], (name, trace.rank, op, column))

    def test_sequences(self):
        for name, text, least in (("param_dlrm_8rank", "", 3), ("param_dlrm_8rank", "aten::", 2),
                                  ("hta_df_index_rank1of2", "aten::", 3), ("hta_nccl_args_rank0of2", "Backward", 2),
                                  ("tracelens_mi300_resnet_rank0of8", "aten::convolution", 1)):
            with self.subTest(name + " " + text):
                flags = ["--filter", text] if text else []
                table = Answer(self.runs[name], "sequences", "--min-length", least, "--rank", "all", *flags)
                for trace in self.traces[name]:
                    rows = {s: (r["count"], r["total_ns"]) for s, r in table.of(trace.rank, "sequence").items()}
                    expected = oracle.sequences(trace, text, least)
                    self.assertTrue(expected)
                    self.assertEqual(rows, expected)

    def test_ranges(self):
        for name in SETS:
            with self.subTest(name):
                run, traces = self.runs[name], self.traces[name]
                table = Answer(run, "ranges", "--rank", "all")
                for trace in traces:
                    rows = {r: (row["count"], row["total_ns"]) for r, row in table.of(trace.rank, "range").items()}
                    self.assertEqual(rows, oracle.annotations(trace))

    def test_memory(self):
        table = Answer(self.runs["hta_df_index_rank1of2"], "memory")
        expected = oracle.peak_memory(self.traces["hta_df_index_rank1of2"][0])
        rows = {row["device"] if row["memory"] == "gpu" else "host": row for row in table.rows}
        self.assertEqual(set(rows), set(expected))
        for device, (peak, largest, count) in expected.items():
            self.assertEqual(rows[device]["peak_allocated_bytes"], peak)
            self.assertEqual(rows[device]["largest_allocation_bytes"], largest)
            self.assertEqual(rows[device]["allocations"], count)
        self.assertTrue(Answer(self.runs["param_dlrm_8rank"], "memory").notes)

    def test_groups_add_up_to_the_identity(self):
        for name in SETS:
            with self.subTest(name):
                run, traces = self.runs[name], self.traces[name]
                table = Answer(run, "groups", "--rank", "all")
                analysis = json.loads(lockstep("analyze", run, "--json", "-", "-q").stdout)
                ranks = {row["rank"]: row for row in analysis["ranks"]}
                for trace in traces:
                    rows = [row for row in table.rows if row["rank"] == trace.rank]
                    for column in EXPOSED:
                        self.assertEqual(sum(row[column] for row in rows), ranks[trace.rank][column], column)
                    for row in rows:
                        if row["total_ns"] is not None:
                            self.assertEqual(row["total_ns"], row["hidden_ns"] + row["exposed_ns"] + row["shared_ns"])

    def test_formats_and_jobs_agree(self):
        run = self.runs["param_dlrm_8rank"]
        for name in TABLES:
            with self.subTest(name):
                first = lockstep("analyze", run, "--table", name, "--rank", "all", "--json", "-", "-q", "-j", 1).stdout
                for jobs in (2, 4):
                    again = lockstep("analyze", run, "--table", name, "--rank", "all", "--json", "-", "-q", "-j", jobs)
                    self.assertEqual(again.stdout, first)
                table = json.loads(first)
                text = lockstep("analyze", run, "--table", name, "--rank", "all", "--csv", "-", "-q").stdout
                rows = list(csv.reader(io.StringIO(text, newline="")))
                self.assertEqual(rows[0], [column["name"] for column in table["columns"]])
                self.assertEqual(len(rows) - 1, len(table["rows"]))
                for written, row in zip(rows[1:], table["rows"]):
                    self.assertEqual(len(written), len(row))
                    for a, b in zip(written, row):
                        if b is None:
                            self.assertEqual(a, "")
                        elif isinstance(b, str):
                            self.assertEqual(a, b)
                        else:
                            self.assertEqual(float(a), float(b))
                shown = lockstep("analyze", run, "--table", name, "--rank", "all", "-q").stdout
                self.assertTrue(shown.startswith(table["title"]))
                if table["rows"]:
                    # A line per row under the header, until the notes.
                    block = shown.split("\n\n")[0].splitlines()
                    self.assertGreaterEqual(len(block), len(table["rows"]) + 2)

    def test_steps_narrow(self):
        run, (trace,) = self.runs["hta_df_index_rank1of2"], self.traces["hta_df_index_rank1of2"]
        steps = sorted((e["begin"], e["end"], int(e["name"].split("#")[1])) for e in trace.of("user_annotation")
                       if e["name"].startswith("ProfilerStep#"))
        begin, end, number = steps[1]
        table = Answer(run, "ops", "--steps", "%d:%d" % (number, number + 1))
        expected = {}
        for op in trace.of("cpu_op"):
            if begin <= op["begin"] < end:
                expected[op["name"]] = expected.get(op["name"], 0) + 1
        self.assertEqual({row["op"]: row["calls"] for row in table.rows if row["calls"] is not None}, expected)
        nothing = Answer(run, "ops", "--steps", "900000:900001")
        self.assertEqual(nothing.rows, [])
        self.assertTrue(any("steps asked for" in note for note in nothing.notes))


class Generated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.recorded = cls.make("run", TRAINING)

    @classmethod
    def make(cls, name, text):
        run = cls.directory.name + "/" + name
        pathlib.Path(run + ".run").write_text(text)
        subprocess.run([BUILD / "make_run", run + ".run", run], check=True)
        return run

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def test_every_table_says_something(self):
        for name in TABLES:
            with self.subTest(name):
                table = Answer(self.recorded, name)
                self.assertTrue(table.rows or table.notes)
        for name in ("kernels", "breakdown", "sequences"):
            table = Answer(self.recorded, name)
            self.assertEqual(table.rows, [])
            self.assertEqual(table.notes, ["all ranks: no GPU events"])

    def test_groups_add_up_to_the_identity(self):
        self.add_up(self.recorded)

    def test_messages_add_up_too(self):
        run = self.make("messages", MESSAGES)
        self.add_up(run)
        kinds = {row["kind"] for row in Answer(run, "groups").rows}
        self.assertTrue({"send/recv", "all-reduce", "barrier"} <= kinds, kinds)
        self.assertEqual([note for note in Answer(run, "groups").notes if "receives" in note], [])

    def add_up(self, run):
        table = Answer(run, "groups", "--rank", "all")
        ranks = json.loads(lockstep("analyze", run, "--json", "-", "-q").stdout)["ranks"]
        self.assertEqual(len(ranks), 2)
        for rank in ranks:
            rows = [row for row in table.rows if row["rank"] == rank["rank"]]
            self.assertTrue(rows)
            for column in EXPOSED:
                self.assertEqual(sum(row[column] for row in rows), rank[column], column)
            comm = sum(row["total_ns"] - row["shared_ns"] for row in rows if row["total_ns"] is not None)
            several = sum(row["exposed_ns"] for row in rows if row["total_ns"] is None)
            self.assertGreaterEqual(comm + several, rank["comm_ns"])

    def test_flags(self):
        listed = lockstep("analyze", "--table", "help", ok=(0,)).stdout
        for name in TABLES:
            self.assertIn(" " + name + " ", listed)
        for flags, said in ((["--table", "nonsense"], "kernels"), (["--table", "groups", "--rank", "7"], "rank 7"),
                            (["--table", "groups", "--rank", "x"], "--rank"),
                            (["--table", "groups", "--steps", "x"], "--steps")):
            done = lockstep("analyze", self.recorded, *flags, ok=(2,))
            self.assertEqual(done.stdout, "")
            self.assertIn(said, done.stderr)
        done = lockstep("analyze", self.recorded, "--table", "groups", "--csv", "/nonexistent/x.csv", ok=(1,))
        self.assertIn("cannot write the file", done.stderr)
        path = self.directory.name + "/groups.csv"
        done = lockstep("analyze", self.recorded, "--table", "groups", "--csv", path)
        self.assertTrue(pathlib.Path(path).read_text().startswith("rank,group,"))
        self.assertIn("Communication by process group", done.stdout)


if __name__ == "__main__":
    if not os.path.exists(LOCKSTEP):
        skip("lockstep is not built")
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[3:]])
