"""`lockstep import kineto` on traces made by hand: import_test.py BUILD_DIR [-v] CASE"""

import collections
import gzip
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv[1]).resolve()
LOCKSTEP = str(BUILD / "lockstep")
if not os.path.exists(LOCKSTEP):
    print("skipped: lockstep is not built")
    sys.exit(77)
try:
    import h5py  # noqa: F401  (jobs.py reads rank files with it)
except ImportError:
    print("skipped: no h5py")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402
import traces  # noqa: E402


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-import-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def lockstep(self, *words, code=0, **more):
        done = subprocess.run([LOCKSTEP, *map(str, words)], cwd=self.dir, capture_output=True, text=True, timeout=120,
                              env={**jobs.ENVIRONMENT, **more})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def imported(self, *files, code=0, run="run", options=()):
        """Rank -> RankFile."""
        self.done = self.lockstep("import", "kineto", *files, "-o", run, *options, code=code)
        return {int(path.stem[5:]): jobs.RankFile(path) for path in sorted((self.dir / run / "ranks").glob("rank-*.h5"))}

    def analysis(self, run="run", *options, code=0):
        return json.loads(self.lockstep("analyze", run, "--json", "-", *options, code=code).stdout)

    def write(self, all_traces, name="rank_%d.json", **how):
        return [traces.write(trace, self.dir / "in" / (name % i if "%" in name else name), **how)
                for i, trace in enumerate(all_traces)]

    def loss(self, analysis, name):
        return sum(row["count"] for row in analysis["losses"] if row["name"] == name)


def terms(analysis):
    return [{key: rank[key] for key in ("rank", "span_ns", "compute_ns", "idle_ns", "comm_ns", "overlap_ns", "copy_ns")}
            for rank in analysis["ranks"]]


class Content(Case):
    """What the tables hold, event by event."""

    def check(self, style, vendor):
        all_traces = traces.job(2, style=style, seq=style == "new")
        files = self.imported(*self.write(all_traces))
        self.assertEqual(sorted(files), [0, 1])
        for rank, file in files.items():
            trace = all_traces[rank]
            count = collections.Counter(e.get("cat") for e in trace.events if e["ph"] == "X")
            self.assertEqual(file.rows("kernels"), count["kernel"])
            self.assertEqual(file.rows("copies"), count["gpu_memcpy"])
            self.assertEqual(file.rows("api"), count["cuda_runtime"])
            self.assertEqual(file.rows("sync"), count["cuda_sync"])
            self.assertEqual(file.rows("ranges"), count["cpu_op"] + count["user_annotation"])
            self.assertEqual(file.rows("gpu_memory"), sum(e["name"] == "[memory]" for e in trace.events))
            self.assertEqual(file.rows("collectives"), 6)
            self.assertEqual(file.meta["imported"], "kineto")
            self.assertEqual(file.meta["rank"], str(rank))
            self.assertEqual(file.meta["world_size"], "2")

            # Times to the nanosecond.
            first = min(e["ts"] for e in trace.events if e.get("cat") == "kernel")
            expected = round(first * 1000) + trace.base
            self.assertEqual(int(min(file.column("kernels", "begin_ns"))), expected)
            self.assertEqual(expected, trace.ns(400 + 100 * rank))

            self.assertEqual({int(v) for v in file.column("kernels", "vendor")}, {vendor})
            steps = file.tables["steps"]
            self.assertEqual(list(steps["index"]), [10, 11, 12])
            self.assertEqual(list(steps["source"]), [3, 3, 3])
            self.assertEqual(list(steps["complete"]), [1, 1, 1])
            training = [i for i, t in enumerate(file.column("threads", "training")) if t]
            self.assertEqual([int(file.column("threads", "tid")[i]) for i in training], [trace.tid])
            self.assertEqual(file.text(file.column("threads", "name")[training[0]]), "thread %d (python3)" % trace.tid)
            self.assertEqual(file.executables, ["python3"])

            ranges = file.tables["ranges"]
            category = {file.text(n): int(c) for n, c in zip(ranges["name"], ranges["category"])}
            self.assertEqual(category["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"], 1)
            self.assertEqual(category["DistributedDataParallel.forward"], 2)
            self.assertEqual(category["autograd::engine::evaluate_function: AddmmBackward0"], 3)
            self.assertEqual(category["Optimizer.step#SGD.step"], 4)
            self.assertEqual(category["aten::addmm"], 0)
            depth = {file.text(n): int(d) for n, d in zip(ranges["name"], ranges["depth"])}
            self.assertEqual([depth[name] for name in ("ProfilerStep#10", "DistributedDataParallel.forward",
                                                       "aten::linear", "aten::addmm")], [0, 1, 2, 3])
            payload = [(int(p), int(k)) for n, p, k in zip(ranges["name"], ranges["payload"], ranges["payload_kind"])
                       if file.text(n).startswith("autograd::")]
            self.assertEqual(set(payload), {(7, 3)})

            self.assertEqual([int(b) for b in file.column("copies", "bytes")], [4096] * 3)
            self.assertEqual({int(k) for k in file.column("copies", "kind")}, {1})
            self.assertEqual({int(k) for k in file.column("copies", "host_memory")}, {2})
            self.assertEqual({int(a) for a in file.column("copies", "asynchronous")}, {int(style != "rocm")})
            memory = [(int(k), int(b)) for k, b in zip(file.column("gpu_memory", "kind"), file.column("gpu_memory", "bytes"))]
            self.assertEqual(memory, [(1, 4096), (2, 4096)] * 3)
            self.assertEqual({int(k) for k in file.column("sync", "kind")}, {3})
            shapes = file.tables["kernel_shapes"]
            self.assertEqual(int(shapes["grid_x"][0]), 64)
            self.assertEqual(int(shapes["occupancy_percent"][0]), -1 if style == "rocm" else 37)
            self.assertNotIn(0xffffffff, [int(s) for n, s in zip(file.column("kernels", "name"), file.column("kernels", "shape"))
                                          if "gemm" in file.text(n)])
            self.assertEqual(int(file.column("devices", "device")[0]), rank)
            self.assertEqual(int(file.column("devices", "sm_count")[0]), 132)
            self.assertEqual(file.losses, {**({"ImportGroupUnknown": 6} if style == "old" else {}),
                                           "ImportCategorySkipped": 3})

            collectives = file.tables["collectives"]
            self.assertEqual([int(b) for b in collectives["bytes"]], [4000, 1_000_000] * 3)
            self.assertEqual({int(k) for k in collectives["kind"]}, {1})
            self.assertEqual({int(m) for m in collectives["mode"]}, {3})
            self.assertEqual({int(w) for w, r in zip(file.column("kernels", "work"), file.column("kernels", "work_rule"))
                              if r == 1}, {1})
            self.assertEqual(sum(int(w) for w in file.column("kernels", "work")), 6)
            for row, kernel in enumerate(collectives["kernel"]):
                self.assertIn("nccl", file.text(file.column("kernels", "name")[kernel]))
                self.assertEqual(collectives["begin_ns"][row], file.column("kernels", "begin_ns")[kernel])
                self.assertEqual(collectives["end_ns"][row],
                                 file.column("kernels", "begin_ns")[kernel] + file.column("kernels", "duration_ns")[kernel])
            self.assertEqual([int(v) for v in file.column("comms", "identity")], [{"new": 0, "rocm": 1, "old": 2}[style]])
            self.assertEqual([int(v) for v in collectives["seq"]], list(range(1, 7)) if style == "new" else list(range(6)))
        ids = {int(file.column("comms", "global_id")[0]) for file in files.values()}
        self.assertEqual(len(ids), 1)
        self.assertNotIn(0, ids)
        self.assertEqual([int(file.column("comms", "rank")[0]) for file in files.values()], [0, 1])

    def test_new(self):
        self.check("new", 1)

    def test_old(self):
        self.check("old", 1)

    def test_rocm(self):
        self.check("rocm", 2)

    def test_analysis(self):
        for style in ("new", "old", "rocm"):
            self.imported(*self.write(traces.job(4, style=style, seq=style == "new")), run="run-" + style)
            analysis = self.analysis("run-" + style)
            self.assertEqual(analysis["run"]["ranks"], 4)
            self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)
            self.assertEqual(sum(row["count"] for row in analysis["collectives"]), 6, style)

    def test_python_functions(self):
        trace = traces.job(1)[0]
        for i in range(5):
            trace.event("python_function", "train.py(3): main", 10 + i, 100, **{"Python id": i})
        path = traces.write(trace, self.dir / "in" / "rank_0.json")
        without = self.imported(path)[0]
        self.assertEqual((without.losses["ImportCategorySkipped"], without.losses["ImportPythonSkipped"]), (3, 5))
        with_them = self.imported(path, run="run-2", options=["--python-functions"])[0]
        self.assertEqual(sum(int(s) == 4 for s in with_them.column("ranges", "source")), 5)
        self.assertEqual(with_them.losses["ImportCategorySkipped"], 3)


class Writing(Case):
    """Compressed, pretty, minified, by any number of threads: the same rows."""

    def test_layouts(self):
        job = traces.job(2)
        digests = set()
        for i, (name, how) in enumerate((("rank_%d.json", {}), ("rank_%d.json", {"pretty": True}),
                                         ("rank_%d.json", {"squeeze": True}), ("rank_%d.pt.trace.json.gz", {}))):
            for path in self.write(job, name, **how):
                os.rename(path, str(path))
            files = self.imported("in", run="run-%d" % i)
            shutil.rmtree(self.dir / "in")
            digests.add(tuple(self.digest(file) for file in files.values()))
        self.assertEqual(len(digests), 1)

    def digest(self, file):
        """Every value but those that name the source."""
        rows = []
        for table, columns in sorted(file.tables.items()):
            if table in ("meta", "strings", "string_bytes", "losses"):
                continue
            for name, values in sorted(columns.items()):
                texts = name in ("name", "exe", "domain", "parameters")
                rows.append((table, name, tuple(file.text(v) for v in values) if texts else tuple(map(int, values))))
        return tuple(rows)

    def test_threads_and_order_of_files(self):
        files = self.write(traces.job(4))
        seen = set()
        for i, (order, jobs_) in enumerate(((files, 1), (files[::-1], 2), (files[2:] + files[:2], 4))):
            self.imported(*order, run="run-%d" % i, options=["-j", jobs_])
            self.lockstep("merge", "run-%d" % i)
            seen.add(tuple(self.lockstep("info", "--digest", "run-%d/%s" % (i, name)).stdout.partition("\n")[2]
                           for name in (*("ranks/rank-%05d.h5" % r for r in range(4)), "timeline.h5")))
        self.assertEqual(len(seen), 1)

    def test_trailing_garbage_of_gzip(self):
        job = traces.job(2)
        good = self.imported(*self.write(job, "rank_%d.json.gz"))
        shutil.rmtree(self.dir / "in")
        bad = self.imported(*self.write(job, "rank_%d.json.gz", tail=b"no gzip member" * 10), run="run-2", code=3)
        self.assertEqual([self.digest(f) for f in good.values()], [self.digest(f) for f in bad.values()])
        self.assertEqual([f.losses.get("ImportGarbage") for f in bad.values()], [1, 1])
        self.assertIn("neither JSON nor gzip", self.done.stdout)

    def test_cut_anywhere(self):
        """All rows before the cut but at most the last, exit 3, the defect named and counted."""
        trace = traces.job(1, steps=range(4))[0]
        path = traces.write(trace, self.dir / "in" / "rank_0.json")
        text = path.read_bytes()
        ends, at, depth = [], text.index(b'"traceEvents": [') + 16, 0
        for i in range(at, len(text)):
            depth += (text[i] == 0x7b) - (text[i] == 0x7d)
            if text[i] == 0x7d and depth == 0:
                ends.append(i + 1)
            if depth < 0 or (depth == 0 and text[i] == 0x5d):
                break
        self.assertEqual(len(ends), len(trace.events))
        tables = {"kernel": "kernels", "cuda_runtime": "api", "cpu_op": "ranges", "user_annotation": "ranges",
                  "gpu_memcpy": "copies", "cuda_sync": "sync", "cpu_instant_event": "gpu_memory"}
        generator = random.Random(4)
        for cut in sorted(generator.sample(range(at + 2, ends[-1]), 100)):
            path.write_bytes(text[:cut])
            file = self.imported(path, options=["--force", "-q"], code=3)[0]
            self.assertEqual(file.losses.get("ImportCutShort"), 1, cut)
            self.assertIn("end before their JSON does", self.done.stdout)
            whole = [e for e, end in zip(trace.events, ends) if end <= cut]
            expected = sum(e.get("cat") in tables for e in whole)
            rows = sum(file.rows(table) for table in set(tables.values()))
            self.assertTrue(expected - 1 <= rows <= expected, (cut, expected, rows))

    def test_cut_gzip(self):
        job = traces.job(2, steps=range(4))
        files = self.write(job, "rank_%d.json.gz")
        data = files[1].read_bytes()
        files[1].write_bytes(data[:len(data) * 2 // 3])
        read = self.imported(*files, code=3)
        self.assertEqual(sorted(read), [0, 1])
        self.assertEqual(read[1].losses.get("ImportCutShort"), 1)
        self.assertGreater(read[1].rows("ranges"), 10)
        self.assertEqual(read[0].losses.get("ImportCutShort"), None)
        self.assertEqual(self.analysis(code=3)["run"]["ranks"], 2)

    def test_odd_numbers(self):
        trace = traces.job(1)[0]
        trace.operator("aten::nan", 50, 1)
        trace.events[-1]["ts"] = "Infinity!"
        trace.operator("aten::negative", 60, -3)
        path = traces.write(trace, self.dir / "in" / "rank_0.json")
        path.write_text(path.read_text().replace('"Infinity!"', "Infinity"))
        file = self.imported(path, code=3)[0]
        self.assertEqual(file.losses.get("ImportTimeInvalid"), 1)
        self.assertEqual(file.losses.get("ImportNegativeDuration"), 1)
        self.assertEqual(file.ranges.get("aten::nan"), None)
        self.assertEqual(file.ranges.get("aten::negative"), 1)


class Ranks(Case):
    """Which file is which rank."""

    def without_info(self, count=3, **more):
        job = traces.job(count, **more)
        for trace in job:
            trace.facts.pop("distributedInfo", None)
        return job

    def test_rank_from_names(self):
        for i, name in enumerate(("trace_rank_%d.json", "rank%d.pt.trace.json.gz", "worker%d_step_12.1694128.json",
                                  "t.rank-%d.json", "rank_%d/trace.json", "job_%d.json")):
            files = self.imported(*self.write(self.without_info(), name)[::-1], run="run-%d" % i)
            self.assertEqual(sorted(files), [0, 1, 2], name)
            for rank, file in files.items():
                self.assertEqual(int(file.column("devices", "device")[0]), rank, name)
                self.assertEqual((file.losses.get("ImportRankInferred"), file.losses.get("ImportRankUnknown")), (1, None))
                self.assertEqual(file.losses.get("ImportWorldSizeUnknown"), 1)
            self.assertIn("3 imported traces that do not state their rank", self.done.stdout)
            shutil.rmtree(self.dir / "in")

    def test_rank_from_order(self):
        job = self.without_info()
        paths = [traces.write(trace, self.dir / "in" / name) for trace, name in zip(job, ("a.json", "b.json", "c9999.json"))]
        files = self.imported(*paths, code=3)
        self.assertEqual([int(files[r].column("devices", "device")[0]) for r in (0, 1, 2)], [0, 1, 2])
        self.assertEqual([f.losses.get("ImportRankUnknown") for f in files.values()], [1, 1, 1])
        analysis = self.analysis(code=3)
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)
        self.assertEqual(len(analysis["ranks"]), 3)

    def test_one_lacks_it(self):
        job = traces.job(3)
        del job[1].facts["distributedInfo"]
        paths = [traces.write(trace, self.dir / "in" / name) for trace, name in zip(job, ("x.json", "y.json", "z.json"))]
        files = self.imported(*paths)  # The one that is left can be no other.
        self.assertEqual([int(files[r].column("devices", "device")[0]) for r in (0, 1, 2)], [0, 1, 2])
        self.assertEqual([f.losses.get("ImportRankInferred") for f in files.values()], [None, 1, None])

    def test_info_at_the_end(self):
        """Compressed files show their end only when all is read."""
        paths = []
        for trace in traces.job(3):
            document = trace.document()
            document["distributedInfo"] = document.pop("distributedInfo")
            document["traceEvents"] += [{"ph": "M", "name": "padding", "pid": 1, "tid": 1, "ts": 0,
                                         "args": {"text": "%x" % random.Random(i).getrandbits(4000)}} for i in range(400)]
            paths.append(traces.write(document, self.dir / "in" / ("%d.json.gz" % (9 - trace.rank))))
        files = self.imported(*paths)
        self.assertEqual([int(files[r].column("devices", "device")[0]) for r in (0, 1, 2)], [0, 1, 2])
        self.assertEqual([int(files[r].column("comms", "rank")[0]) for r in (0, 1, 2)], [0, 1, 2])
        self.assertEqual({f.meta["world_size"] for f in files.values()}, {"3"})

    def test_duplicate(self):
        job = traces.job(3)
        paths = self.write(job)
        extra = traces.write(job[1], self.dir / "in" / "rank_7_copy.json")
        files = self.imported(*paths, extra, code=3)
        self.assertEqual(sorted(files), [0, 1, 2])
        self.assertIn("rank_7_copy.json: rank 1 was read from", self.done.stdout)
        analysis = self.analysis(code=3)
        self.assertEqual(self.loss(analysis, "RankDuplicated"), 1)
        self.assertEqual(sum(row["count"] for row in analysis["collectives"]), 6)

    def test_one_missing(self):
        paths = self.write(traces.job(4))
        files = self.imported(*paths[:3])
        self.assertEqual(sorted(files), [0, 1, 2])
        analysis = self.analysis(code=3)
        self.assertEqual(analysis["run"]["ranks_missing"], [3])
        self.assertEqual(len(analysis["ranks"]), 3)

    def test_mixed_jobs(self):
        job = traces.job(3)
        job[2].facts["distributedInfo"]["world_size"] = 64
        files = self.imported(*self.write(job), code=3)
        self.assertEqual(sorted(files), [0, 1])
        self.assertIn("rank_2.json: says the job has 64 ranks, not 3", self.done.stdout)


class Defects(Case):
    def test_other_step_numbers(self):
        job = traces.job(3, steps=(10,))
        for event in job[1].events:
            event["name"] = event["name"].replace("ProfilerStep#10", "ProfilerStep#11")
        plain = traces.job(3, steps=(10,))
        self.imported(*self.write(plain))
        expected = self.analysis()
        self.imported(*self.write(job), run="run-2")
        analysis = self.analysis("run-2", code=3)
        self.assertEqual(terms(analysis), terms(expected))
        self.assertGreaterEqual(self.loss(analysis, "StepMismatch"), 1)

    def test_no_steps(self):
        job = traces.job(3)
        for trace in job:
            trace.events = [e for e in trace.events if not e["name"].startswith("ProfilerStep")]
        self.imported(*self.write(job))
        analysis = self.analysis()
        self.assertEqual(len(analysis["ranks"]), 3)
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)

    def test_steps_by_name(self):
        plain = traces.job(2)
        self.imported(*self.write(plain), run="plain")
        expected = self.analysis("plain")
        for name, options in (("train_step %d", ()), ("Iteration", ()), ("epoch part #%d", ("--step-range", "epoch part"))):
            job = traces.job(2)
            for event in (event for trace in job for event in trace.events):
                if event["name"].startswith("ProfilerStep#"):
                    event["name"] = name % int(event["name"][13:]) if "%" in name else name
            run = name.split()[0]
            files = self.imported(*self.write(job), run=run, options=options)
            indices = [10, 11, 12] if "%" in name else [0, 1, 2]
            self.assertEqual(list(files[0].column("steps", "index")), indices, name)
            self.assertEqual(terms(self.analysis(run)), terms(expected), name)
        # A name that is asked for wins over ProfilerStep; one that does not occur is a mistake.
        paths = self.write(plain)
        files = self.imported(*paths, run="forward", options=("--step-range", "DistributedDataParallel.forward"))
        self.assertEqual(len(files[0].column("steps", "index")), 3)
        for command in (("import", *paths, "-o", "none"), ("analyze", *paths)):
            done = self.lockstep(*command, "--step-range", "nosuch", code=2)
            self.assertIn("no range is named 'nosuch'", done.stderr)
            self.assertIn("DistributedDataParallel.forward (3 times)", done.stderr)
        self.assertFalse((self.dir / "none").exists())

    def test_one_step_that_prepares_on_the_host_first(self):
        """Whole steps, though the GPU has nothing to do for most of one: by host work before its first kernel, and after its last."""
        for after in (0, 40_000):
            trace = traces.Trace(0, 1, backend=None)
            trace.annotation("ProfilerStep#5", 0, 382_500 + after)
            trace.operator("aten::to", 1_000, 200_000)
            for i in range(150):
                trace.operator("aten::conv2d", 217_500 + i * 1_000, 500)
                trace.kernel("conv", 217_600 + i * 1_000, 900, trace.launch(217_550 + i * 1_000))
            trace.kernel("conv", 367_600, 14_900, trace.launch(367_550))
            run = "prepares-%d" % after
            self.imported(*self.write([trace]), run=run, options=["--force"])
            analysis = self.analysis(run)
            summary = analysis["summary"]
            self.assertEqual((summary["step_ns_mean"], summary["compute_ns"], summary["idle_ns"]),
                             ((382_500 + after) * 1_000, 149_900_000, (232_600 + after) * 1_000))
            self.assertTrue(analysis["verdict"].startswith("The GPU is idle for 218 ms of each %d ms step before the work of a step begins"
                                                           % (422 if after else 382)), analysis["verdict"])
            self.assertEqual(sum(cause["ns"] for cause in analysis["idle_causes"]), summary["idle_ns"])

    def test_idle_time_of_a_late_rank_is_priced_once(self):
        """Rank 1's GPU gets its kernels 16 ms later than the others', which wait: its idle time is in the straggler's price."""
        job, late = [], 16_000
        for rank in range(4):
            trace = traces.Trace(rank, 4)
            for i in range(12):
                at = i * 50_000
                begin = at + 500 + (late if rank == 1 else 0)
                trace.annotation("ProfilerStep#%d" % i, at, 49_990)
                trace.operator("aten::linear", begin - 80, 60)
                trace.kernel("gemm", begin, 10_000, trace.launch(begin - 50))
                trace.communication(begin - 20, begin + 10_000, at + 31_500 - begin - 10_000, elements=6_250_000)
                trace.kernel("sgd", at + 31_510, 18_000, trace.launch(begin - 10))
                trace.launch(begin, at + 49_520 - begin, name="cudaDeviceSynchronize")
            job.append(trace)
        self.imported(*self.write(job))
        analysis = self.analysis()
        self.assertEqual([finding["id"] for finding in analysis["findings"] if finding["id"].startswith("idle")], [])
        self.assertEqual(analysis["findings"][0]["id"], "straggler.arrival")
        self.assertEqual(analysis["findings"][0]["rank"], 1)
        self.assertEqual(sum(cause["ns"] for cause in analysis["idle_causes"]), analysis["summary"]["idle_ns"])
        of_straggler = sum(cause["ns"] for cause in analysis["idle_causes"] if cause["finding"] == "straggler.arrival")
        self.assertAlmostEqual(of_straggler / (late * 1_000 / 4), 1, delta=0.05)

    def test_first_step_that_is_no_warm_up(self):
        """Copies before the first kernel make the first step long and the last one short, and the mean is right."""
        for slow in (0, 30_000):
            trace = traces.Trace(0, 1, backend=None)
            at = 0
            for i in range(12):
                length = 10_000 + (slow if i == 0 else 0)
                trace.annotation("ProfilerStep#%d" % i, at, length)
                trace.operator("aten::copy_", at + 10, 40)
                trace.copy("Memcpy HtoD (Pinned -> Device)", at + 100, 8_000, 1 << 20, trace.launch(at + 50, name="cudaMemcpyAsync"))
                trace.kernel("gemm", at + 8_200, length - 8_300, trace.launch(at + 8_150))
                at += length
            run = "copies-%d" % slow
            self.imported(*self.write([trace]), run=run, options=["--force"])
            analysis = self.analysis(run)
            self.assertEqual([step["warmup"] for step in analysis["steps"]], [slow > 0] + [False] * 11)
            if slow == 0:
                self.assertEqual(analysis["summary"]["step_ns_mean"], 10_000_000)

    def test_no_metadata_of_collectives(self):
        """Kernels' names are all there is; whichever they are, the ranks' times are the same."""
        seen = []
        for i, prefix in enumerate(("ncclKernel_", "ncclDevKernel_", "rcclDevKernel_")):
            job = traces.job(3)
            for trace in job:
                trace.events = [e for e in trace.events
                                if e["name"] != "record_param_comms" and not e["name"].startswith("nccl:")]
                for event in trace.events:
                    if event["name"].startswith("ncclDevKernel_"):
                        event["name"] = event["name"].replace("ncclDevKernel_", prefix)
                        for key in [k for k in event["args"] if k[0].isupper() and k != "External id"]:
                            del event["args"][key]
            files = self.imported(*self.write(job), run="run-%d" % i)
            for file in files.values():
                self.assertEqual(file.losses.get("ImportGroupUnknown"), 6)
                self.assertEqual([int(k) for k in file.column("collectives", "kind")], [1] * 6)
                self.assertEqual([int(k) for k in file.column("comms", "identity")], [2])
            seen.append(terms(self.analysis("run-%d" % i)))
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(seen[0], seen[2])
        self.assertGreater(seen[0][0]["comm_ns"], 0)

    def test_no_runtime_calls(self):
        job = traces.job(2)
        for trace in job:
            trace.events = [e for e in trace.events if e.get("cat") != "cuda_runtime"]
        files = self.imported(*self.write(job))
        for file in files.values():
            self.assertEqual(file.losses["ImportLaunchMissing"], 5 * 3 + 3)
            self.assertEqual(file.rows("collectives"), 6)

    def test_what_is_no_trace(self):
        paths = self.write(traces.job(2))
        (self.dir / "in" / "package.json").write_text('{"name": "x"}')
        (self.dir / "in" / "analysis.json").write_text('{"schema": "lockstep.analysis/1", "ranks": []}')
        (self.dir / "in" / "empty.json").write_text("")
        done = self.lockstep("import", "kineto", "in", "-o", "run")
        for name in ("package.json", "analysis.json", "empty.json"):
            self.assertIn("skipped in/" + name, done.stderr)
        # Named one by one they count as lost.
        files = self.imported(*paths, "in/package.json", run="run-2", code=3)
        self.assertEqual(sorted(files), [0, 1])
        self.assertIn("package.json", self.done.stdout)
        self.assertEqual(self.loss(self.analysis("run-2", code=3), "FileUnreadable"), 1)
        self.lockstep("import", "kineto", "in/package.json", "-o", "run-3", code=2)
        self.lockstep("import", "kineto", "nowhere", "-o", "run-4", code=2)

    def test_gloo(self):
        """No GPU, no NCCL: the trace is read, the backend is named, never 'nothing wrong'."""
        for rank in range(2):
            trace = traces.Trace(rank, 2, backend="gloo")
            for i in range(3):
                trace.annotation("ProfilerStep#%d" % i, i * 10_000, 9_990)
                trace.operator("aten::mm", i * 10_000 + 100, 4_000)
                trace.operator("c10d::allreduce_", i * 10_000 + 5_000, 3_000)
                trace.annotation("gloo:all_reduce", i * 10_000 + 5_100, 2_800)
            traces.write(trace, self.dir / "in" / ("rank%d.json" % rank))
        files = self.imported("in")
        self.assertEqual(files[0].rows("collectives"), 0)
        analysis = self.analysis(code=3)
        self.assertEqual(self.loss(analysis, "BackendNotCaptured"), 1)
        self.assertIn("gloo", json.dumps(analysis["losses"]))
        self.assertEqual([s["index"] for s in analysis["steps"]], [0, 1, 2])


class Hostile(Case):
    """What a trace says of itself must not cost more than the trace is large."""

    MB = 1 << 10  # ru_maxrss is in KiB.

    def peak(self, *words, codes=(0, 3)):
        """(KiB at most, standard output)"""
        with open(self.dir / "out", "w+") as out, open(self.dir / "err", "w+") as err:
            child = subprocess.Popen([LOCKSTEP, *map(str, words)], cwd=self.dir, stdout=out, stderr=err,
                                     env=jobs.ENVIRONMENT)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        said = (self.dir / "out").read_text()
        self.assertIn(child.returncode, codes, said + (self.dir / "err").read_text())
        return usage.ru_maxrss, said

    def whole(self, name, *commands):
        """Peak of importing and analysing in/NAME, and of whatever else is asked."""
        most, said = self.peak("analyze", "in/" + name, "--json", "-", "-j", "2")
        for command in commands:
            most = max(most, self.peak(*command)[0])
        return most, said and json.loads(said)

    def one(self, name, change=lambda trace: None, **how):
        trace = traces.job(1, **how)[0]
        change(trace)
        return traces.write(trace, self.dir / "in" / name)

    def plain(self):
        self.one("plain_rank_0.json")
        return self.whole("plain_rank_0.json")[0]

    def test_numbers(self):
        plain = self.plain()
        huge = (10**12, 2**31 - 1, 2**32, 2**63 - 1, 2**64, -1, -2**63, 1e300)

        def everywhere(value):
            def change(trace):
                trace.facts["distributedInfo"].update(world_size=value, rank=0, pg_config=[
                    {"pg_name": "0", "pg_desc": "default_pg", "pg_size": value, "ranks": [0, value]}])
                for event in trace.events:
                    args = event.get("args", {})
                    for key in ("Group size", "Global rank start", "Global rank stride", "In msg nelems", "Seq", "stream",
                                "device", "grid", "block", "bytes", "registers per thread", "correlation"):
                        if key in args or key.startswith("Global rank"):
                            args[key] = [value] * 3 if key in ("grid", "block") else value
                    if "Process Group Ranks" in args:
                        args["Process Group Ranks"] = "[0, %s, %s]" % (value, value)
            return change

        for i, value in enumerate(huge):
            with self.subTest(value=value):
                self.one("n%d.json" % i, everywhere(value))
                peak, analysis = self.whole("n%d.json" % i)
                self.assertLess(peak, plain + 64 * self.MB)
                self.assertLess(analysis["run"]["ranks_expected"], 1 << 20)
        for i, value in enumerate((10**12, 2**20, 2**31)):
            self.one("rank%d.json" % i, lambda trace, value=value: trace.facts["distributedInfo"].update(rank=value))
            self.assertLess(self.whole("rank%d.json" % i)[0], plain + 64 * self.MB)
        # In the names of files, too.
        self.one("trace_rank_99999999999999999999.json", lambda trace: trace.facts.pop("distributedInfo"))
        self.assertLess(self.whole("trace_rank_99999999999999999999.json")[0], plain + 64 * self.MB)

    def test_large_job(self):
        """A million ranks may be. One of them is here."""
        plain = self.plain()
        self.one("large.json", lambda trace: trace.facts["distributedInfo"].update(world_size=1_000_000, rank=500_000))
        peak, analysis = self.whole("large.json")
        self.assertLess(peak, plain + 300 * self.MB)
        self.assertEqual(analysis["run"]["ranks_expected"], 1_000_000)
        self.assertEqual(self.loss(analysis, "RankMissing"), 999_999)
        self.assertLess(sum(row["name"] == "RankMissing" for row in analysis["losses"]), 5)

    def test_deep(self):
        plain = self.plain()
        for i, deep in enumerate(("[" * 1_000_000, '{"a":' * 500_000, "[" * 500_000 + "]" * 500_000)):
            path = self.one("deep%d.json" % i)
            text = path.read_text()
            at = text.index('"args": {') + len('"args": {')
            path.write_text(text[:at] + '"x": ' + deep + (", " if deep.endswith("]") else "") + text[at:])
            with self.subTest(i=i):
                self.assertLess(self.whole("deep%d.json" % i)[0], plain + 64 * self.MB)
        (self.dir / "in/bare_rank_0.json").write_text("[" * 3_000_000)
        self.assertLess(self.peak("analyze", "in/bare_rank_0.json", codes=(2, 3))[0], plain + 64 * self.MB)

    def test_long_names(self):
        plain = self.plain()

        def change(trace):
            trace.events[5]["name"] = "x" * (8 << 20)
            trace.operator("\u001b[31m" + "y" * (1 << 20), 100, 5)
            for i in range(20_000):
                trace.operator("name %d" % i, 200 + i, 1)
        path = self.one("long.json", change)
        self.assertLess(self.whole("long.json")[0], plain + 10 * path.stat().st_size // 1024 + 64 * self.MB)

    def test_gzip_bomb(self):
        """300 MB in 300 kB: blanks, events of no interest, and one text that never ends."""
        plain = self.plain()
        text = traces.job(1)[0].document()
        head = json.dumps({**text, "traceEvents": text["traceEvents"][:-1]})[:-2].rsplit("]", 1)[0]
        for name, piece, most in (("blanks", b" " * (1 << 20), 256), ("skipped", b', {"ph": "s", "id": 1}' * 40_000, 64),
                                  ("text", b"a" * (1 << 20), 300)):
            end = b"]}" if name != "text" else b""
            path = self.dir / "in" / f"{name}_rank_0.json.gz"
            with gzip.open(path, "wb", compresslevel=1) as file:
                file.write(head.encode())
                if name == "text":
                    file.write(b', {"ph": "X", "name": "')
                for _ in range(300):
                    file.write(piece)
                file.write(end)
            with self.subTest(name=name):
                peak, _ = self.whole(path.name)
                self.assertLess(peak, plain + most * self.MB)


class Groups(Case):
    """Process groups: the same on all members, different where they differ."""

    def comms(self, file):
        rows = file.tables["comms"]
        return {file.text(name): (int(global_id), int(size), int(rank), int(identity)) for name, global_id, size, rank, identity
                in zip(rows["name"], rows["global_id"], rows["size"], rows["rank"], rows["identity"])}

    def job(self, groups_of, style="new", **more):
        """groups_of(rank) -> [(name, description, ranks), ...], one all-reduce on each."""
        job = []
        for rank in range(4):
            trace = traces.Trace(rank, 4, style=style)
            trace.annotation("ProfilerStep#1", 0, 9_000)
            for i, group in enumerate(groups_of(rank)):
                trace.communication(100 + 500 * i, 200 + 500 * i, 100, group=group, stream=20 + i, **more)
            job.append(trace)
        return job

    def test_same_name_other_ranks(self):
        files = self.imported(*self.write(self.job(
            lambda r: [("0", "default_pg", None), ("3", "mesh_tp", [0, 1] if r < 2 else [2, 3]),
                       ("4", "mesh_dp", [r % 2, r % 2 + 2])])))
        comms = {rank: self.comms(file) for rank, file in files.items()}
        self.assertEqual(len({c["default_pg (0)"][0] for c in comms.values()}), 1)
        tp = [comms[r]["mesh_tp (3)"] for r in range(4)]
        self.assertEqual([c[0] for c in tp], [tp[0][0]] * 2 + [tp[2][0]] * 2)
        self.assertNotEqual(tp[0][0], tp[2][0])
        self.assertEqual([c[2] for c in tp], [0, 1, 0, 1])
        dp = [comms[r]["mesh_dp (4)"] for r in range(4)]
        self.assertEqual([c[0] for c in dp], [dp[0][0], dp[1][0]] * 2)
        self.assertEqual([c[2] for c in dp], [0, 0, 1, 1])
        self.assertEqual([c[1] for c in dp], [2] * 4)
        analysis = self.analysis()
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)
        self.assertEqual(sum(row["count"] for row in analysis["collectives"]), 5)

    def test_same_ranks_other_groups(self):
        files = self.imported(*self.write(self.job(lambda r: [("0", "default_pg", None), ("7", "fsdp", None),
                                                              ("8", "undefined", None), ("9", "undefined", None)])))
        ids = [tuple(sorted(c[0] for c in self.comms(file).values())) for file in files.values()]
        self.assertEqual(len(set(ids)), 1)
        self.assertEqual(len(set(ids[0])), 4)

    def test_names_that_differ_between_members(self):
        """Each rank numbers its groups itself: rank r calls them r+1 and r+10."""
        files = self.imported(*self.write(self.job(lambda r: [(str(100 * r + 5), "mesh_dp", [0, 1, 2, 3]),
                                                              (str(100 * r + 11), "mesh_dp", [0, 1, 2, 3])])))
        rows = [[int(v) for v in file.column("comms", "global_id")] for file in files.values()]
        self.assertEqual(rows, [rows[0]] * 4)
        self.assertNotEqual(rows[0][0], rows[0][1])

    def test_truncated_ranks(self):
        """Kineto keeps the first 30 ranks of a list; start and stride tell the rest."""
        world = 64
        job = []
        for rank in (0, 2):
            trace = traces.Trace(rank, world)
            trace.communication(100, 200, 100, group=("5", "dp", list(range(0, 64, 2))),
                                **{"Global rank start": 0, "Global rank stride": 2})
            for event in trace.events:
                ranks = event.get("args", {}).get("Process Group Ranks")
                if ranks:
                    event["args"]["Process Group Ranks"] = "[" + ", ".join(str(2 * i) for i in range(30)) + ", ...]"
            job.append(trace)
        files = self.imported(*self.write(job))
        # The kernel has no start and stride in these versions? It has here; the list alone must not be believed.
        for file, comm_rank in ((files[0], 0), (files[2], 1)):
            comms = file.tables["comms"]
            self.assertEqual((int(comms["size"][0]), int(comms["rank"][0]), int(comms["first_world_rank"][0]),
                              int(comms["stride"][0])), (32, comm_rank, 0, 2))

    def test_no_name_but_the_stream_has(self):
        """Some kernels lack their arguments: the group whose stream it is."""
        job = traces.job(2, steps=(1,))
        for trace in job:
            first = next(e for e in trace.events if e.get("cat") == "kernel" and "nccl" in e["name"])
            launch = first["args"]["correlation"]
            first["args"] = {k: v for k, v in first["args"].items() if not k[0].isupper()}
            record = next(e for e in trace.events if e["name"] == "record_param_comms")
            trace.events.remove(record)
            trace.events = [e for e in trace.events if not (e["name"].startswith("nccl:") and e["ts"] < record["ts"] + 50)]
            self.assertTrue(any(e.get("args", {}).get("correlation") == launch for e in trace.events))
        files = self.imported(*self.write(job))
        for file in files.values():
            self.assertEqual(file.rows("comms"), 1)
            self.assertEqual(file.rows("collectives"), 2)
            self.assertEqual([int(s) for s in file.column("collectives", "seq")], [0, 1])
            self.assertEqual(file.losses["ImportGroupUnknown"], 1)


class Operations(Case):
    """Kinds, sizes and operations that are not one kernel each."""

    def one(self, what, build):
        trace = traces.Trace(0, 4)
        trace.annotation("ProfilerStep#1", 0, 9_000)
        build(trace)
        return self.imported(traces.write(trace, self.dir / "in" / (what + "_rank_0.json")), run="run-" + what)[0]

    def test_kinds_and_bytes(self):
        for what, kind, elements, bytes_ in (("allreduce", 1, 1000, 4000), ("_allgather_base", 2, 1000, 4000),
                                             ("_reduce_scatter_base", 3, 1000, 4000), ("all_to_all", 4, 1000, 4000),
                                             ("barrier", 5, 1, 0), ("broadcast", 6, 10, 40)):
            more = {"Rank": 2} if what == "broadcast" else {}
            file = self.one(what, lambda t: t.communication(100, 200, 50, what=what, elements=elements, **more))
            row = {name: int(values[0]) for name, values in file.tables["collectives"].items()}
            self.assertEqual((row["kind"], row["bytes"]), (kind, bytes_), what)
            self.assertEqual(row["root"], 2 if what == "broadcast" else -1)
            self.assertEqual(row["uneven"], 0)

    def test_uneven(self):
        file = self.one("uneven", lambda t: t.communication(100, 200, 50, what="all_to_all", elements=10,
                                                             **{"In split size": "[1, 2, 3, 4]"}))
        self.assertEqual(int(file.column("collectives", "uneven")[0]), 1)

    def test_point_to_point(self):
        def build(trace):
            trace.communication(100, 200, 50, what="send", elements=10, **{"Dst Rank": 1, "Rank": 1})
            trace.communication(400, 500, 50, what="recv", elements=20, **{"Src Rank": 3, "Rank": 3})
            trace.communication(700, 800, 50, what="allreduce")

        file = self.one("p2p", build)
        p2p = file.tables["p2p"]
        self.assertEqual([int(v) for v in p2p["direction"]], [0, 1])
        self.assertEqual([int(v) for v in p2p["peer_world_rank"]], [1, 3])
        self.assertEqual([int(v) for v in p2p["bytes"]], [40, 80])
        self.assertEqual([int(v) for v in file.column("collectives", "seq")], [0])

    def test_grouped(self):
        """batch_isend_irecv: several records, one kernel launched after them."""
        def build(trace):
            trace.communication(100, 0, 0, what="send", elements=10, launch=False, **{"Dst Rank": 1, "Rank": 1})
            trace.communication(200, 0, 0, what="recv", elements=10, launch=False, **{"Src Rank": 1, "Rank": 1})
            trace.kernel("ncclDevKernel_SendRecv(ncclDevComm*)", 300, 80, trace.launch(260, tid=trace.autograd),
                         trace.comm_stream)

        file = self.one("grouped", build)
        self.assertEqual(file.rows("collectives"), 0)
        self.assertEqual([(int(d), int(b)) for d, b in zip(file.column("p2p", "direction"), file.column("p2p", "bytes"))],
                         [(0, 40), (1, 40)])
        self.assertEqual(file.meta["operations_grouped"], "2")

    def test_several_kernels(self):
        def build(trace):
            trace.communication(100, 200, 50, what="all_to_all", elements=100)
            launch = trace.launch(112, 2, trace.autograd)
            trace.kernel("ncclDevKernel_SendRecv(ncclDevComm*)", 260, 40, launch, trace.comm_stream)

        file = self.one("several", build)
        self.assertEqual(file.rows("collectives"), 1)
        begin, end = int(file.column("collectives", "begin_ns")[0]), int(file.column("collectives", "end_ns")[0])
        self.assertEqual(end - begin, 100_000)
        self.assertEqual([int(w) for w in file.column("kernels", "work")], [1, 1])

    def test_packing_is_no_communication(self):
        def build(trace):
            trace.communication(100, 200, 50, what="allreduce")
            trace.operator("aten::copy_", 120, 10, trace.autograd)
            trace.kernel("void at::native::copy(float*)", 260, 40, trace.launch(122, 2, trace.autograd))

        file = self.one("packing", build)
        names = {file.text(n): int(w) for n, w in zip(file.column("kernels", "name"), file.column("kernels", "work"))}
        self.assertEqual(names["void at::native::copy(float*)"], 0)
        self.assertEqual(file.rows("collectives"), 1)


class Commands(Case):
    def test_existing_run(self):
        files = self.write(traces.job(2))
        self.imported(*files)
        done = self.lockstep("import", "kineto", *files, "-o", "run", code=2)
        self.assertIn("--force", done.stderr)
        self.imported(files[0], options=["--force"])
        self.assertEqual([p.name for p in (self.dir / "run" / "ranks").iterdir()], ["rank-00000.h5"])

    def test_analyze_imports(self):
        self.write(traces.job(2), "rank_%d/trace.json.gz")
        first = self.lockstep("analyze", "in", "--json", "-")
        self.assertIn("imported 2 traces into", first.stderr)
        self.assertTrue((self.dir / "in" / ".lockstep").is_dir())
        again = self.lockstep("analyze", "in", "--json", "-")
        self.assertIn("as imported before", again.stderr)
        self.assertEqual(first.stdout, again.stdout)
        by_files = self.lockstep("analyze", "in/rank_0/trace.json.gz", "in/rank_1/trace.json.gz", "--json", "-", "-q")
        self.assertEqual(by_files.stderr, "")
        self.assertEqual(json.loads(by_files.stdout)["ranks"], json.loads(first.stdout)["ranks"])
        self.lockstep("analyze", "in/rank_*/trace.json.gz")  # No shell took the pattern apart.
        os.utime(self.dir / "in" / "rank_0" / "trace.json.gz", (1, 1))
        self.assertIn("imported 2 traces", self.lockstep("analyze", "in").stderr)

    def test_analyze_beside_read_only(self):
        self.write(traces.job(2))
        if os.geteuid() == 0:
            (self.dir / "in" / ".lockstep").write_text("in the way")  # Root may write anywhere.
        else:
            os.chmod(self.dir / "in", 0o555)
            self.addCleanup(os.chmod, self.dir / "in", 0o755)
        done = self.lockstep("analyze", "in", XDG_CACHE_HOME=str(self.dir / "cache"))
        self.assertIn(str(self.dir / "cache" / "lockstep"), done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
