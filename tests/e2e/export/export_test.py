"""lockstep export: what other tools' readers see is what the run's tables hold.

usage: export_test.py BUILD_DIR [unittest arguments]
"""

import collections
import csv
import ctypes
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import h5py
import jobs
import numpy as np
import rank_tables
import runs
import timeline as perfetto

LONGER = 2_000_000  # Traces that protoc writes as text: below that in bytes.


class Case(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.directory = pathlib.Path(held.name)

    def perfetto(self, run, *options):
        if not perfetto.have_protoc():
            self.skipTest("protoc is not here (Debian: protobuf-compiler)")
        file = self.directory / "out.pftrace"
        done = jobs.run([jobs.LOCKSTEP, "export", run, "-o", file, *options], cwd="/")
        self.assertIn(done.returncode, (0, 3), done.stderr)
        # 3: the run itself is incomplete or doubtful, and that is said.
        self.assertEqual(done.returncode == 3, b"incomplete" in done.stdout)
        return perfetto.Timeline(file.read_bytes())

    def check_counts(self, run, trace, ranks=None):
        """Every row of every rank's tables is there once."""
        for name, file in jobs.Run(run).files().items():
            rank = int(re.search(r"rank-(\d+)", name).group(1))
            if ranks is not None and rank not in ranks:
                self.assertEqual(trace.of(rank), [])
                continue
            expected = {"MPI ·": file.rows("mpi_calls"), "collectives ·": file.rows("collectives"),
                        "messages": file.rows("p2p"), "runtime calls": file.rows("api"),
                        ("ranges ·", "phases", "start/end"): file.rows("ranges")}
            for prefix, count in expected.items():
                prefixes = prefix if isinstance(prefix, tuple) else (prefix,)
                self.assertEqual(len(trace.of(rank, *prefixes)), count, (rank, prefix))
            gpu = [s for s in trace.of(rank, "GPU ") if "stream" in s.track]
            self.assertEqual(len(gpu), file.rows("kernels") + file.rows("copies"), rank)
            self.assertEqual(len([s for s in trace.of(rank, "GPU ") if "synchron" in s.track]), file.rows("sync"))

    def check_cluster(self, run, trace):
        """One slice per matched collective, cut at the last arrival, and the same number on all its ranks."""
        with h5py.File(run / "timeline.h5") as file:
            instances, members = runs.rows(file, "collectives"), runs.rows(file, "collective_ranks")
            step_ranks = runs.rows(file, "step_ranks")
        found = {s.correlation: s for s in trace.of(-1, "collectives") if s.name not in ("wait for the last", "transfer")}
        self.assertEqual(len(found), len(instances))
        base = self.base(trace)
        parts = collections.defaultdict(dict)
        for part in trace.of(-1, "collectives"):
            if part.name in ("wait for the last", "transfer"):
                self.assertGreater(part.depth, 0)
                parts[part.correlation][part.name] = part
        for row, instance in enumerate(instances):
            shown = found[row + 1]
            self.assertEqual(shown.begin, instance["first_arrival_ns"] - base)
            self.assertEqual(shown.end, max(instance["end_ns"], instance["last_arrival_ns"]) - base)
            self.assertEqual(shown.args["ranks_seen"], instance["seen"])
            if instance["splits"] and instance["last_arrival_ns"] > instance["first_arrival_ns"]:
                wait = parts[row + 1]["wait for the last"]
                self.assertEqual((wait.begin, wait.end), (shown.begin, instance["last_arrival_ns"] - base))
                if instance["end_ns"] > instance["last_arrival_ns"]:
                    transfer = parts[row + 1]["transfer"]
                    self.assertEqual((transfer.begin, transfer.end), (wait.end, shown.end))
        of_rank = {(s.pid - 2, s.correlation): s for s in trace.slices if s.pid >= 2 and s.correlation}
        self.assertEqual(len(of_rank), len(members))
        for member in members:
            shown = of_rank[member["rank"], member["collective"] + 1]
            self.assertEqual(shown.begin, member["arrival_ns"] - base)
            self.assertEqual(shown.args.get("wait_ns", -1), member["wait_ns"])
            self.assertEqual(shown.name, found[member["collective"] + 1].name)
        steps = collections.Counter(s.pid - 2 for s in trace.slices if s.pid >= 2 and s.track in ("steps", "steps (GPU)"))
        self.assertEqual(steps, collections.Counter(int(row["rank"]) for row in step_ranks))
        for row in step_ranks:
            shown = next(s for s in trace.of(row["rank"], "steps") if s.name == f"step {row['index']}"
                         and s.track in ("steps", "steps (GPU)"))
            self.assertEqual(shown.args["compute_ns"], row["compute_ns"])
            self.assertEqual(shown.end, row["cluster_end_ns"] - base)
        self.check_flows(trace, members, instances)

    def base(self, trace):
        cluster = next(p for p in trace.processes.values() if p["name"] == "cluster")
        return int(re.search(r"time 0 is (-?\d+) ns", cluster["description"]).group(1))

    def check_flows(self, trace, members, instances):
        begun = {flow: s for s in trace.slices for flow in s.flows}
        ended = {flow: s for s in trace.slices for flow in s.flow_ends}
        self.assertEqual(sorted(begun), sorted(ended))
        waits = []
        for flow, source in begun.items():
            target = ended[flow]
            self.assertLess(source.begin, target.begin)
            self.assertEqual(source.correlation, target.correlation)
            self.assertEqual(target.pid - 2, instances[source.correlation - 1]["last_rank"])
            waits.append(source.args["wait_ns"])
        known = sorted((int(m["wait_ns"]) for m in members
                        if instances[m["collective"]]["last_rank"] >= 0
                        and m["wait_ns"] > instances[m["collective"]]["error_ns"]
                        and m["rank"] != instances[m["collective"]]["last_rank"]), reverse=True)
        self.assertEqual(sorted(waits, reverse=True), known[:200])


class Perfetto(Case):
    def test_mpi(self):
        run = runs.make(runs.MPI, self.directory)
        trace = self.perfetto(run)
        self.check_counts(run, trace)
        self.check_cluster(run, trace)
        self.assertTrue(trace.ordered)
        ranks = sorted((p for p in trace.processes.values() if p["name"] != "cluster"), key=lambda p: p["order"])
        self.assertEqual([p["name"].split(" ·")[0] for p in ranks], [f"rank {r}" for r in range(4)])
        self.assertTrue(all(p["children"] == "EXPLICIT" for p in trace.processes.values()))
        self.assertEqual({s.name for s in trace.of(0, "phases")}, {"input", "forward", "backward", "optimizer"})
        # Two buckets in flight at once, and nothing in the end.
        flying = trace.counters[2, "collectives in flight"]
        self.assertGreater(max(value for _, value in flying), 1)
        self.assertEqual(flying[-1][1], 0)
        self.assertEqual(trace.counters[2, "bytes in flight"][-1][1], 0)
        findings = [s for s in trace.instants if s.track == "findings"]
        _, analysis, _ = jobs.Run(run).analyze()
        self.assertEqual([f.name for f in findings], [f["headline"] for f in analysis["findings"]])
        self.assertTrue(findings)

    def test_gpu(self):
        run = runs.make(runs.GPU, self.directory)
        trace = self.perfetto(run)
        self.check_counts(run, trace)
        self.check_cluster(run, trace)
        self.assertIn("GPU 0", next(p["name"] for p in trace.processes.values() if p["name"].startswith("rank 0")))
        self.assertTrue(trace.of(0, "steps (host)"))
        self.assertEqual({value for _, value in trace.counters[2, "GPU 0 · SM clock"]}, {1980})
        # What a launch and its kernel have in common.
        launches = {s.args["correlation"] for s in trace.of(0, "runtime calls") if "correlation" in s.args}
        self.assertTrue({s.args["correlation"] for s in trace.of(0, "GPU 0 · stream")} <= launches)

    def test_same_bytes(self):
        run = runs.make(runs.MPI, self.directory)
        first, second = self.directory / "1.pftrace", self.directory / "2.pftrace"
        runs.lockstep("export", run, "-o", first, "-j", "1")
        runs.lockstep("export", run, "-o", second)
        self.assertEqual(first.read_bytes(), second.read_bytes())

    def test_one_rank(self):
        run = runs.make(runs.MPI.replace("ranks 4\nnodes 2", "ranks 1").replace("clock rank=2 offset=3s drift=20ppm\n", "")
                        .replace("late rank=2 by=2ms\n", "").replace("comm half block=2\n", "")
                        .replace("comm=half", ""), self.directory)
        trace = self.perfetto(run)
        self.check_counts(run, trace)
        self.check_cluster(run, trace)


class Imported(Case):
    def test_round_trip(self):
        """Traces -> run -> traces -> run: all counts are equal, collectives and groups are the same."""
        for words in ("kineto nccl=seq operators=2 memory=3", "kineto names=old operators=1", "kineto nccl=none vendor=amd"):
            with self.subTest(words):
                held = self.directory / str(len(words))
                held.mkdir()
                traces = runs.make(runs.GPU + words + "\n", held)
                first, second = held / "first", held / "second"
                runs.lockstep("import", "kineto", traces, "-o", first)
                out = held / "kineto"
                runs.lockstep("export", first, "--format", "kineto", "-o", out, expect=(0, 3))
                runs.lockstep("import", "kineto", out, "-o", second)
                before, after = jobs.Run(first).files(), jobs.Run(second).files()
                self.assertEqual(list(before), list(after))
                for name in before:
                    for table in ("kernels", "copies", "api", "ranges", "sync", "steps", "collectives", "p2p", "gpu_memory"):
                        self.assertEqual(after[name].rows(table), before[name].rows(table), (name, table))
                    for column in ("kind", "bytes", "seq", "dtype"):
                        self.assertEqual(list(after[name].column("collectives", column)),
                                         list(before[name].column("collectives", column)), (name, column))
                    # Of kernels that begin together either may come first.
                    self.assertEqual(self.kernels(after[name]), self.kernels(before[name]))
                    self.assertEqual(sorted(after[name].column("comms", "global_id")),
                                     sorted(before[name].column("comms", "global_id")))
                    self.assertEqual(after[name].ranges, before[name].ranges)
                for run in (first, second):  # 3: groups that had to be guessed may be guessed wrongly.
                    self.assertIn(jobs.run([jobs.LOCKSTEP, "merge", run], cwd="/").returncode, (0, 3))
                with h5py.File(first / "timeline.h5") as a, h5py.File(second / "timeline.h5") as b:
                    self.assertEqual(len(a["collectives/kind"]), len(b["collectives/kind"]))
                trace = self.perfetto(first, "--no-findings")
                self.check_counts(first, trace)

    def kernels(self, file):
        return sorted(zip(file.column("kernels", "begin_ns") - min(file.column("kernels", "begin_ns")),
                          *(file.column("kernels", c) for c in ("duration_ns", "stream", "correlation", "work"))))

    def test_recorded(self):
        """Of a recorded GPU run everything that Kineto knows comes back."""
        run = runs.make(runs.GPU, self.directory)
        out, back = self.directory / "kineto", self.directory / "back"
        runs.lockstep("export", run, "--format", "kineto", "-o", out)
        for rank in range(4):
            text = (out / f"rank-{rank:05}.pt.trace.json").read_text()
            self.assertRegex(text, rf'(?m)^.*"rank":\s+{rank}\b')  # As Holistic Trace Analysis looks for it.
            trace = json.loads(text)
            self.assertEqual(trace["distributedInfo"]["world_size"], 4)
            self.assertEqual(trace["distributedInfo"]["backend"], "nccl")
        runs.lockstep("import", "kineto", out, "-o", back)
        before, after = jobs.Run(run).files(), jobs.Run(back).files()
        for name in before:
            for table in ("kernels", "copies", "api", "sync", "steps", "collectives"):
                self.assertEqual(after[name].rows(table), before[name].rows(table), (name, table))
            # Steps of a recorded run are marks; of a trace they are ranges.
            self.assertEqual(after[name].rows("ranges"), before[name].rows("ranges") + before[name].rows("steps"))
        runs.lockstep("merge", run), runs.lockstep("merge", back)
        with h5py.File(run / "timeline.h5") as a, h5py.File(back / "timeline.h5") as b:
            def arrivals(file):
                return sorted(int(ns) for ns in file["collective_ranks/arrival_ns"][:])
            self.assertEqual(len(arrivals(a)), len(arrivals(b)))


    def test_names_the_backend_that_there_was(self):
        out = self.directory / "mpi"
        runs.lockstep("export", runs.make(runs.MPI, self.directory), "--format", "kineto", "-o", out)
        for path in out.iterdir():
            info = json.loads(path.read_text())["distributedInfo"]
            self.assertEqual(info["backend"], "mpi")
            self.assertEqual({group["backend_config"] for group in info["pg_config"]}, {"cpu:mpi"})


class Narrowed(Case):
    def test_steps_ranks_and_durations(self):
        run = runs.make(runs.MPI, self.directory)
        whole = self.perfetto(run, "--no-findings")
        some = self.perfetto(run, "--no-findings", "--ranks", "1,3", "--steps", "2:4")
        self.check_counts_of_ranks(some, {1, 3})
        for rank in (1, 3):
            steps = [s.name for s in some.of(rank, "steps")]
            self.assertIn("step 2", steps), self.assertIn("step 3", steps)
            self.assertLess(len(some.of(rank)), len(whole.of(rank)))
        long = self.perfetto(run, "--no-findings", "--min-dur", "1ms")
        base = self.base(whole) - self.base(long)
        kept = {(s.pid, s.track, s.name, s.begin) for s in long.slices}
        for s in whole.slices:
            detail = s.track.startswith(("MPI", "ranges", "phases", "messages"))
            present = (s.pid, s.track, s.name, s.begin + base) in kept
            self.assertEqual(present, not detail or s.end - s.begin >= 1_000_000 or present)
            if detail and s.end - s.begin < 1_000_000:
                self.assertFalse(present, s)

    def check_counts_of_ranks(self, trace, ranks):
        self.assertEqual({s.pid - 2 for s in trace.slices} - {-1}, ranks)

    def test_budget(self):
        run = runs.make(runs.MPI.replace("steps 6", "steps 100"), self.directory)
        whole = self.directory / "whole.pftrace"
        runs.lockstep("export", run, "-o", whole, "--no-findings")
        budget = whole.stat().st_size * 2 // 3
        small = self.directory / "small.pftrace"
        said = runs.lockstep("export", run, "-o", small, "--no-findings", "--budget", f"{budget}B")
        self.assertLessEqual(small.stat().st_size, budget)
        self.assertRegex(said, r"left out, below [0-9.]+ .s: [0-9,]+ ")
        if perfetto.have_protoc():
            trace = perfetto.Timeline(small.read_bytes())
            with h5py.File(run / "timeline.h5") as file:
                count = len(file["collectives/kind"])
            self.assertEqual(len([s for s in trace.of(-1, "collectives") if s.depth == 0]), count)
            cluster = [p["description"] for p in trace.processes.values() if p["name"] == "cluster"][0]
            self.assertIn("left out", cluster)
        # What cannot be had is said.
        said = runs.lockstep("export", run, "-o", small, "--no-findings", "--budget", "10kB")
        self.assertIn("larger than --budget", said)

    def test_split(self):
        run = runs.make(runs.MPI, self.directory)
        archive = self.directory / "timeline.tar"
        runs.lockstep("export", run, "-o", archive, "--split")
        with tarfile.open(archive) as tar:
            names = tar.getnames()
            self.assertEqual(names[0], "perfetto_manifest.json")
            manifest = json.load(tar.extractfile(names[0]))["perfetto_manifest"]
            self.assertEqual(sorted(f["path"] for f in manifest["files"]), sorted(names[1:]))
            self.assertEqual(sorted(names[1:]), ["cluster.pftrace"] + [f"rank-{r:05}.pftrace" for r in range(4)])
            parts = [tar.extractfile(name).read() for name in names[1:]]
        if not perfetto.have_protoc():
            self.skipTest("protoc is not here (Debian: protobuf-compiler)")
        whole = self.perfetto(run)
        traces = [perfetto.Timeline(part) for part in parts]
        self.assertEqual(sum(len(t.slices) for t in traces), len(whole.slices))
        merged = sorted((s.pid, s.track, s.name, s.begin, s.end) for t in traces for s in t.slices)
        self.assertEqual(merged, sorted((s.pid, s.track, s.name, s.begin, s.end) for s in whole.slices))
        uuids = [uuid for t in traces for uuid in t.tracks]
        self.assertEqual(len(uuids), len(set(uuids)))


class Partial(Case):
    def check(self, extra, present):
        run = runs.make(runs.MPI + extra, self.directory)
        trace = self.perfetto(run)
        done = jobs.run([jobs.LOCKSTEP, "export", run, "--format", "csv", "-o", self.directory / "csv"], cwd="/")
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"the run is incomplete", done.stdout)
        self.check_counts(run, trace)
        self.assertEqual({s.pid - 2 for s in trace.slices} - {-1}, present)
        self.check_cluster(run, trace)

    def test_missing(self):
        self.check("missing rank=1\n", {0, 2, 3})

    def test_died(self):
        self.check("died rank=1 step=3 signal=9\n", {0, 1, 2, 3})

    def test_cut(self):
        self.check("cut rank=3 step=2\n", {0, 1, 2, 3})


# Pushed as they are: quotes, control characters, no UTF-8, nothing at all, very long.
NAMES = [b'say "hi" \\ there', b"two\nlines\tand\x01more", b"\xff\xfe broken \xc3", "größe · ☃".encode(), b"<script>&amp;,;'",
         b"=1+2", b"x" * 5000]


class Names(Case):
    """A real run whose ranges are called anything."""

    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.run_dir = pathlib.Path(cls.held.name) / "run"
        program = "\n".join([
            "import ctypes",
            "lib = ctypes.CDLL(None)",  # What lockstep.h calls: it is preloaded.
            f"names = {NAMES!r}",
            "for step in range(4):",
            "    lib.lockstep_probe_step()",
            "    for name in names:",
            "        lib.lockstep_probe_range_push(ctypes.c_char_p(name))",
            "        lib.lockstep_probe_range_pop()",
            "    lib.lockstep_probe_mark(ctypes.c_char_p(names[0]))",
            "lib.lockstep_probe_step_end()",
        ])
        done = jobs.run([jobs.LOCKSTEP, "run", "--after", "none", "-o", cls.run_dir, "--", jobs.PYTHON, "-c", program],
                        cwd=cls.held.name)
        assert done.returncode == 0, done.stderr.decode()

    @classmethod
    def tearDownClass(cls):
        cls.held.cleanup()

    def expected(self):
        file = next(iter(jobs.Run(self.run_dir).files().values()))
        found = collections.Counter()
        for name in file.column("ranges", "name"):
            at, size = (file.column("strings", c)[name] for c in ("offset_bytes", "length_bytes"))
            text = bytes(file.column("string_bytes", "value")[at:at + size])
            # As Unicode's own replacement does it, one per byte that begins nothing.
            found[text.decode("utf-8", "replace")] += 1
        return found

    def test_perfetto(self):
        trace = self.perfetto(self.run_dir)
        self.check_counts(self.run_dir, trace)
        self.assertEqual(collections.Counter(s.name for s in trace.of(0, "ranges")), self.expected())

    def test_json(self):
        for style in ("chrome", "kineto"):
            out = self.directory / style
            runs.lockstep("export", self.run_dir, "--format", style, "-o", out)
            files = [out] if style == "chrome" else sorted(out.iterdir())
            names = collections.Counter()
            for file in files:
                trace = json.loads(file.read_bytes().decode("utf-8"))
                names.update(e["name"] for e in trace["traceEvents"] if e["ph"] in "Xi")
            expected = self.expected()
            self.assertEqual({name: names[name] for name in expected}, expected, style)

    def test_csv(self):
        out = self.directory / "csv"
        runs.lockstep("export", self.run_dir, "--format", "csv", "-o", out)
        csv.field_size_limit(1 << 20)
        with open(out / "ranges.csv", newline="", encoding="utf-8") as file:
            names = collections.Counter(row["name"] for row in csv.DictReader(file))
        self.assertEqual(names, self.expected())


class Json(Case):
    def test_chrome(self):
        run = runs.make(runs.MPI, self.directory)
        out = self.directory / "out.json"
        runs.lockstep("export", run, "--format", "chrome", "-o", out)
        events = json.loads(out.read_text())["traceEvents"]
        threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        count = collections.Counter()
        open_until = collections.defaultdict(list)
        for e in events:
            if e["ph"] != "X":
                continue
            where = e["pid"], e["tid"]
            count[e["pid"] - 2, threads[where].split(" ·")[0]] += 1
            begin, end = round(e["ts"] * 1000), round(e["ts"] * 1000) + round(e["dur"] * 1000)
            stack = open_until[where]
            while stack and stack[-1] <= begin:
                stack.pop()
            self.assertTrue(not stack or end <= stack[-1], e)
            stack.append(end)
        for name, file in jobs.Run(run).files().items():
            rank = int(re.search(r"rank-(\d+)", name).group(1))
            self.assertEqual(count[rank, "MPI"], file.rows("mpi_calls"))
            self.assertEqual(count[rank, "collectives"], file.rows("collectives"))
        arrows = collections.Counter(e["ph"] for e in events if e["ph"] in "sf")
        self.assertEqual(arrows["s"], arrows["f"])
        self.assertGreater(arrows["s"], 0)


class Tables(Case):
    def test_csv(self):
        for spec in (runs.MPI, runs.GPU):
            held = self.directory / ("gpu" if "gpu\n" in spec else "mpi")
            held.mkdir()
            run = runs.make(spec, held)
            out = held / "csv"
            runs.lockstep("export", run, "--format", "csv", "-o", out)
            tables = {}
            for file in out.iterdir():
                with open(file, newline="") as text:
                    tables[file.stem] = list(csv.DictReader(text))
            ranks = {int(re.search(r"rank-(\d+)", name).group(1)): file for name, file in jobs.Run(run).files().items()}
            for table in ("mpi_calls", "collectives", "p2p", "ranges", "kernels", "copies", "api", "sync", "threads", "comms",
                          "steps", "gpu_samples"):
                count = collections.Counter(int(row["file_rank"]) for row in tables.get(table, []))
                for rank, file in ranks.items():
                    self.assertEqual(count[rank], file.rows(table), table)
            functions = {row["op"] for row in tables.get("mpi_calls", [])}
            self.assertTrue(all(name.startswith("MPI_") for name in functions), functions)
            with h5py.File(run / "timeline.h5") as file:
                for table in ("collectives", "collective_ranks", "steps", "step_ranks", "clock"):
                    self.assertEqual(len(tables["timeline_" + table]), len(next(iter(file[table].values()))), table)
                arrivals = {(int(r), int(row)): int(ns) for r, row, ns in zip(
                    file["collective_ranks/rank"], file["collective_ranks/row"], file["collective_ranks/arrival_ns"])}
            # Times are the cluster's, so that a rank's row and the timeline's agree.
            begins = collections.Counter((int(row["file_rank"]), int(row["begin_ns"])) for row in tables["collectives"])
            self.assertEqual(begins, collections.Counter((rank, ns) for (rank, _), ns in arrivals.items()))


    def test_csv_leaves_the_unknown_empty(self):
        """Whatever number stands for it, as the file's own description of the column says."""
        def stands_for_none(data):
            unit, description = (str(data.attrs[name]) for name in ("unit", "description"))
            if unit == "string":
                return ()
            none = {np.iinfo("i8").min, 0xffffffff if data.dtype == np.uint32 else None}
            if unit != "enum" and data.dtype.kind == "i":
                none |= {-1} if re.search(r"-1 \w", description) else set()
                none |= {np.iinfo("i4").min} if data.dtype == np.int32 else set()
            if unit != "enum" and data.dtype.kind == "u":
                none |= {int(number) for number in re.findall(r"\b(\d+) unknown", description)}
            return tuple(value for value in none if value is not None and
                         np.iinfo(data.dtype).min <= value <= np.iinfo(data.dtype).max)

        empty = collections.Counter()
        for spec in (runs.MPI, runs.GPU, runs.MPI.replace("ranks 4", "ranks 5") + "missing rank=4\n"):
            held = self.directory / str(len(list(self.directory.iterdir())))
            held.mkdir()
            if "missing" in spec:
                spec = spec.replace("missing rank=4\n", "").replace("step\n", "missing rank=4\nstep\n", 1)
            run = runs.make(spec, held)
            runs.lockstep("export", run, "--format", "csv", "-o", held / "csv", expect=(0, 3))
            files = {int(re.search(r"rank-(\d+)", path.name)[1]): path for path in (run / "ranks").glob("*.h5")}
            for path in (held / "csv").glob("*.csv"):
                with open(path, newline="") as text:
                    rows = list(csv.DictReader(text))
                of_timeline = path.stem.startswith("timeline_")
                for rank, source in {-1: run / "timeline.h5"}.items() if of_timeline else files.items():
                    mine = [row for row in rows if of_timeline or int(row["file_rank"]) == rank]
                    with rank_tables.open_file(source) as file:
                        name = path.stem.removeprefix("timeline_")
                        if not file[name] or not file[name].attrs:  # A table of a rank file without rows.
                            self.assertEqual(mine, [])
                            continue
                        table = file[name]
                        for column, data in table.items():
                            none = stands_for_none(data)
                            if str(data.attrs["unit"]) == "string" or len(mine) != len(data):
                                continue
                            expected = int(np.isin(data[:], none).sum()) if none else 0
                            got = sum(row[column] == "" for row in mine)
                            self.assertEqual(got, expected, f"{path.stem}.{column} of rank {rank}")
                            empty[path.stem + "." + column] += got
        for column in ("collectives.root", "timeline_collective_ranks.step", "timeline_ranks.exit_code", "comms.first_world_rank",
                       "timeline_losses.rank"):
            self.assertIn(column, empty)
        self.assertGreater(empty["collectives.root"], 0)
        self.assertGreater(empty["timeline_ranks.app_cpu_ns"], 0)


class Otf2(Case):
    def test_a_folder_of_somebody_elses_stays(self):
        run = runs.make(runs.MPI, self.directory)
        out = self.directory / "mine"
        (out / "traces").mkdir(parents=True)
        (out / "traces" / "rank_0.json").write_text("{}")
        done = jobs.run([jobs.LOCKSTEP, "export", run, "--format", "otf2", "-o", out], cwd="/")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertTrue((out / "traces" / "rank_0.json").exists())
        # An archive of ours is replaced.
        for _ in range(2):
            done = jobs.run([jobs.LOCKSTEP, "export", run, "--format", "otf2", "-o", self.directory / "again"], cwd="/")
            if b"built without otf2" in done.stderr:
                self.skipTest("this build has no OTF2 (Debian: libotf2-trace-dev)")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_counts(self):
        run = runs.make(runs.MPI, self.directory)
        out = self.directory / "otf2"
        done = jobs.run([jobs.LOCKSTEP, "export", run, "--format", "otf2", "-o", out], cwd="/")
        if done.returncode == 1 and b"built without otf2" in done.stderr:
            self.skipTest("this build has no OTF2 (Debian: libotf2-trace-dev)")
        self.assertEqual(done.returncode, 0, done.stderr)
        if shutil.which("otf2-print") is None:
            self.skipTest("otf2-print is not here (Debian: otf2-tools)")
        said = subprocess.run(["otf2-print", out / "traces.otf2"], capture_output=True, text=True, timeout=60)
        self.assertEqual(said.returncode, 0, said.stderr)
        count, calls = collections.Counter(), collections.Counter()
        last = {}
        for line in said.stdout.splitlines():
            match = re.match(r"([A-Z_]+)\s+(\d+)\s+(\d+)\s*(.*)", line)
            if not match:
                continue
            kind, location, time, rest = match.group(1), int(match.group(2)), int(match.group(3)), match.group(4)
            count[kind] += 1
            self.assertGreaterEqual(time, last.get(location, 0))
            last[location] = time
            if kind == "ENTER" and '"MPI_' in rest:
                calls[location >> 24] += 1
        files = jobs.Run(run).files()
        self.assertEqual(count["ENTER"], count["LEAVE"])
        for name, file in files.items():
            rank = int(re.search(r"rank-(\d+)", name).group(1))
            self.assertEqual(calls[rank], file.rows("mpi_calls"))
        blocking = sum(int((file.column("collectives", "mode") == 0).sum()) for file in files.values())
        self.assertEqual(count["MPI_COLLECTIVE_BEGIN"], blocking)
        self.assertEqual(count["MPI_COLLECTIVE_END"], blocking)
        sends = sum(int((file.column("p2p", "direction") == 0).sum()) for file in files.values())
        self.assertEqual(count["MPI_SEND"], sends)
        self.assertEqual(count["MPI_RECV"], sends)

    def test_gpu(self):
        run = runs.make(runs.GPU, self.directory)
        out = self.directory / "otf2"
        done = jobs.run([jobs.LOCKSTEP, "export", run, "--format", "otf2", "-o", out], cwd="/")
        if done.returncode == 1 and b"built without otf2" in done.stderr:
            self.skipTest("this build has no OTF2 (Debian: libotf2-trace-dev)")
        if shutil.which("otf2-print") is None:
            self.skipTest("otf2-print is not here (Debian: otf2-tools)")
        said = subprocess.run(["otf2-print", out / "traces.otf2"], capture_output=True, text=True, timeout=60)
        enters = sum(line.startswith("ENTER") for line in said.stdout.splitlines())
        tables = ("kernels", "copies", "api", "ranges", "mpi_calls", "mpi_requests")
        with h5py.File(run / "timeline.h5") as file:
            steps = len(file["step_ranks/index"])
        self.assertEqual(enters, steps + sum(f.rows(t) for f in jobs.Run(run).files().values() for t in tables))


class Commands(Case):
    def fails(self, code, text, *words):
        done = jobs.run([jobs.LOCKSTEP, "export", *words], cwd=self.directory)
        self.assertEqual(done.returncode, code, done.stderr)
        lines = done.stderr.decode()
        self.assertIn(text, lines)
        return lines

    def test_errors(self):
        run = runs.make(runs.MPI, self.directory)
        self.fails(2, "try:", self.directory / "nowhere")
        self.fails(2, "try: --ranks 0-3,7", run, "--ranks", "first")
        self.fails(2, "ranks from 0 to 3", run, "--ranks", "9")
        self.fails(2, "steps from", run, "--steps", "900:")
        self.fails(2, "--min-dur 5us", run, "--min-dur", "5 minutes")
        self.fails(2, "--budget 200MB", run, "--budget", "lots")
        self.fails(2, "--split", run, "--format", "csv", "--split")
        self.fails(2, "nonsense", run, "--format", "nonsense")
        self.fails(1, "try:", run, "-o", "/proc/nothing/out.pftrace")
        # Nothing is left of what failed.
        self.assertEqual([p for p in run.iterdir() if p.suffix == ".part"], [])

    def test_full_disk(self):
        run = runs.make(runs.MPI, self.directory)
        if not pathlib.Path("/dev/full").exists():
            self.skipTest("no /dev/full")
        done = subprocess.run(f"ulimit -f 16; '{jobs.LOCKSTEP}' export '{run}' -o out.pftrace", shell=True,
                              cwd=self.directory, capture_output=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertFalse((self.directory / "out.pftrace").exists())

    def test_default_place(self):
        run = runs.make(runs.MPI, self.directory)
        said = runs.lockstep("export", run)
        self.assertIn(str(run / "timeline.pftrace"), said)
        self.assertIn("lockstep open", said)
        self.assertGreater((run / "timeline.pftrace").stat().st_size, 1000)


if __name__ == "__main__":
    program = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False)
    jobs.leave(program.result)
