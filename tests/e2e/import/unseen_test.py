"""What a trace does not show is not judged, on traces made by hand: unseen_test.py BUILD_DIR [-v] CASE"""

import json
import shutil
import sys
import unittest

import import_test
import traces
from import_test import Case


class Runs(Case):
    """Files of several runs."""

    def test_two_jobs_recorded_months_apart(self):
        old = traces.job(2, start=1_690_000_000_000_000)
        names = self.write(old, "old_%d.json") + self.write(traces.job(4), "rank_%d.json")
        files = self.imported(*names, code=3)
        self.assertEqual(sorted(files), [0, 1, 2, 3])
        self.assertEqual(files[0].meta["world_size"], "4")
        analysis = self.analysis(code=3)
        self.assertTrue(analysis["verdict"].startswith("Files of other runs were left out ("), analysis["verdict"])
        for word in ("old_0.json", "old_1.json", "115 days before", "the 4 files"):
            self.assertIn(word, analysis["verdict"])
        self.assertEqual(self.loss(analysis, "RunMixed"), 2)
        self.assertEqual(self.loss(analysis, "RankDuplicated"), 0)
        # The rest is judged as by itself.
        self.imported(*self.write(traces.job(4), "alone_rank_%d.json"), run="run-2")
        self.assertEqual(import_test.terms(self.analysis("run-2")), import_test.terms(analysis))

    def test_each_of_three_is_named(self):
        names = self.write(traces.job(4), "rank_%d.json")
        names += self.write(traces.job(2, start=1_690_000_000_000_000), "old_%d.json")
        names += self.write(traces.job(3, start=1_680_000_000_000_000), "older_%d.json")
        self.imported(*names, code=3)
        analysis = self.analysis(code=3)
        said = {"analyze": analysis["verdict"], "info": self.lockstep("info", "run", code=3).stdout,
                "merge": self.lockstep("merge", "run", code=3).stdout,
                "report": self.lockstep("report", "run", code=3).stdout}
        for command, text in said.items():
            for word in ("old_0.json", "older_0.json", "115 days before", "231 days before"):
                self.assertIn(word, text, command)
        self.assertEqual(self.loss(analysis, "RunMixed"), 5)

    def test_at_the_same_time(self):
        job, other = traces.job(4), traces.job(4)[:2]
        for trace in job + other:
            ranks = [0, 1, 2, 3] if trace in job else [0, 1]
            trace.facts["distributedInfo"].update(pg_count=1, pg_config=[
                {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": len(ranks), "ranks": ranks}])
        files = self.imported(*self.write(job, "a_rank_%d.json"), *self.write(other, "b_rank_%d.json"), code=3)
        self.assertEqual({files[r].meta["source_file"].split("/")[-1][0] for r in files}, {"a"})
        self.assertIn("b_rank_1.json: has a process group of the ranks 0-1, which the others do not know", self.done.stdout)

    def test_hosts(self):
        job = traces.job(4)
        self.imported(*self.write(job))
        self.assertIsNone(self.analysis()["run"]["nodes"])
        self.assertNotIn(" node", self.lockstep("analyze", "run").stdout.split("\n")[0])
        for trace in job:
            trace.facts["host_name"] = "node%d" % (trace.rank // 2)
        self.imported(*self.write(job), run="run-2")
        analysis = self.analysis("run-2")
        self.assertEqual(analysis["run"]["nodes"], 2)
        self.assertEqual([rank["node"] for rank in analysis["ranks"]], ["node0", "node0", "node1", "node1"])

    def test_a_rerun(self):
        first, second = traces.job(2), traces.job(2, start=1_700_000_060_000_000)
        files = self.imported(*self.write(first, "a_%d.json"), *self.write(second, "b_%d.json"), code=3)
        self.assertEqual(sorted(files), [0, 1])
        self.assertIn("b_1.json: recorded 59 s after", self.done.stdout)


class Foreign(Case):
    """Files that no profiler of training wrote."""

    DEVTOOLS = {"traceEvents": [{"cat": "devtools.timeline", "name": "RunTask", "ph": "X", "ts": 1, "dur": 2, "pid": 1,
                                 "tid": 1, "args": {}}]}
    JAX = {"displayTimeUnit": "ns", "traceEvents": [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "X", "pid": 1, "tid": 14, "ts": 1.0, "dur": 3.0, "name": "fusion.1", "args": {"correlation_id": "5"}}]}

    def test_one_among_ranks(self):
        for name, document in (("devtools", self.DEVTOOLS), ("jax", self.JAX), ("empty", {"traceEvents": []})):
            self.write(traces.job(8))
            traces.write(document, self.dir / "in" / (name + ".json"))
            files = self.imported("in", run=name, code=3)
            self.assertEqual(sorted(files), list(range(8)))
            analysis = self.analysis(name, code=3)
            self.assertEqual((analysis["run"]["ranks"], analysis["run"]["ranks_expected"]), (8, 8))
            self.assertEqual(self.loss(analysis, "FileUnreadable"), 1)
            self.assertIn(name + ".json", json.dumps(analysis["losses"]))
            (self.dir / "in" / (name + ".json")).unlink()

    def test_alone(self):
        for name, document, said in (("devtools", self.DEVTOOLS, "devtools.timeline"), ("jax", self.JAX, "no category"),
                                     ("empty", {"traceEvents": []}, "no event in it")):
            path = traces.write(document, self.dir / "in" / (name + ".json"))
            for command in (("analyze", path), ("import", "kineto", path, "-o", name)):
                done = self.lockstep(*command, code=2)
                self.assertIn(said, done.stderr)
                self.assertNotIn("nothing found", done.stdout)


class Beside(Case):
    """Files and folders beside the ranks'."""

    def test_a_helper_process_is_no_rank(self):
        helper = traces.job(1)[0]
        del helper.facts["distributedInfo"]
        self.write(traces.job(4), "dp0_tp%d.json")
        self.write([helper], "node7_2211.async_llm.json")
        self.assertEqual(sorted(self.imported("in")), [0, 1, 2, 3])
        analysis = self.analysis()
        self.assertEqual((analysis["run"]["ranks"], analysis["run"]["ranks_expected"]), (4, 4))
        self.assertEqual(self.loss(analysis, "ImportNoRank"), 1)
        self.imported(*self.write(traces.job(4), "alone_%d.json"), run="alone")
        self.assertEqual(import_test.terms(self.analysis("alone")), import_test.terms(analysis))

    def test_a_folder_of_traces_beside_another_file(self):
        for folder in ("Traces", "z"):  # Before and after it in the order of names.
            self.write(traces.job(2), folder + "/rank_%d.json")
            (self.dir / "in" / "config.json").write_text('{"lr": 0.1}')
            self.assertIn("2 ranks", self.lockstep("analyze", "in").stdout)
            shutil.rmtree(self.dir / "in")


class Devices(Case):
    def unseen(self, change, *words):
        job = traces.job(2, steps=range(10, 20))
        for trace in job:
            change(trace)
        self.imported(*self.write(job), code=3)
        analysis = self.analysis(code=3)
        self.assertTrue(analysis["verdict"].startswith("GPU activity was not recorded"), analysis["verdict"])
        for word in words:
            self.assertIn(word, analysis["verdict"])
        # Whether the GPU was idle is not known, so nothing is priced by that, and nothing is replayed.
        self.assertLessEqual({finding["id"] for finding in analysis["findings"]}, {"straggler.arrival"})
        self.assertIn("not recorded", analysis["replay"]["skipped"])

    def test_of_kinds_that_are_not_understood(self):
        def change(trace):
            for event in trace.events:
                if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"):
                    event["cat"] = "mtia_ccp_events"
        self.unseen(change, "mtia_ccp_events", "events of a device")

    def test_of_no_category(self):
        """As torch_npu writes Ascend's."""
        def change(trace):
            for event in trace.events:
                if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"):
                    del event["cat"]
                    event["args"] = {"Task Type": "AI_CORE", "Stream Id": event["args"].get("stream", 2)}
        self.unseen(change, "no category", "events of a device")

    def test_launches_without_kernels(self):
        def change(trace):
            trace.events = [e for e in trace.events if e.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset")]
        self.unseen(change, "launches and no kernel")

    def test_most_launches_without_kernels(self):
        """As torch.profiler writes where it lost buffers of roctracer."""
        def change(trace):
            launches = sorted(e["args"]["correlation"] for e in trace.events
                              if e.get("cat") == "cuda_runtime" and "Launch" in e["name"])
            kept = set(launches[:len(launches) // 3])
            trace.events = [e for e in trace.events
                            if e.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset")
                            or e["args"].get("correlation") in kept]
        self.unseen(change, "launches have no kernel")

    def test_a_part_of_them(self):
        """Kernels beside work of another kind: what is idle is not known either."""
        self.unseen(lambda trace: trace.event("mtia_insight", "op", 500, 30, device=0, stream=3), "mtia_insight")


class Clocks(Case):
    """The host's and the GPU's clock disagree."""

    def off(self, by_us, run, code=0):
        job = traces.job(2, steps=range(10, 30))
        for trace in job:
            for event in trace.events:
                if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                    event["ts"] += by_us(event["ts"] - trace.ts(0))
        self.imported(*self.write(job, run + "_rank_%d.json"), run=run, code=code)
        return self.analysis(run, code=code)

    def test_by_a_constant(self):
        right = self.off(lambda at: 0, "right")
        self.assertEqual(self.loss(right, "GpuTimesMoved"), 0)
        for run, by in ("early", -3000), ("late", 3000):
            analysis = self.off(lambda at: by, run)
            self.assertTrue(analysis["verdict"].startswith("GPU and CPU clocks are apart by at least "), analysis["verdict"])
            self.assertGreater(self.loss(analysis, "GpuTimesMoved"), 0)
            self.assertIn("ms, as launches and waits show", analysis["verdict"])
            for rank, as_right in zip(import_test.terms(analysis), import_test.terms(right)):
                for term in "compute_ns", "comm_ns", "overlap_ns", "copy_ns":
                    self.assertEqual(rank[term], as_right[term], (run, rank["rank"], term))

    def test_by_less_than_is_worth_a_word(self):
        analysis = self.off(lambda at: -70, "slightly")
        self.assertGreater(self.loss(analysis, "GpuTimesMoved"), 0)
        self.assertNotIn("clocks", analysis["verdict"])

    def test_by_more_and_more(self):
        analysis = self.off(lambda at: at // 100, "drift")
        self.assertTrue(analysis["verdict"].startswith("GPU and CPU clocks contradict each other by up to "), analysis["verdict"])
        self.assertEqual(self.loss(analysis, "GpuTimesMoved"), 0)
        self.assertGreater(self.loss(analysis, "GpuClockContradicts"), 0)
        self.assertIn("contradict the GPU's clock", analysis["replay"]["skipped"])
        compared = {finding["id"] for finding in analysis["findings"]}
        self.assertFalse({f for f in compared if f.split(".")[0] in ("host", "sync", "launch", "input", "idle")}, compared)


class WithoutKineto(Case):
    """PyTorch's own list of events: no category, relative times, processes of no number."""

    def test_names_and_nesting(self):
        for rank in range(2):
            events = []
            for i in range(4):
                at = 1_000 + 10_000 * i
                for name, begin, duration, tid in (
                        ("DistributedDataParallel.forward", 0, 3_000, 1), ("aten::linear", 100, 900, 1),
                        ("aten::addmm", 200, 700, 1), ("autograd::engine::evaluate_function: AddmmBackward0", 4_000, 2_000, 1),
                        ("c10d::allreduce_", 6_500, 100, 1), ("gloo:all_reduce", 6_550, 1_500, 3),
                        ("Optimizer.step#SGD.step", 9_000, 800, 1), ("my own label", 9_900, 50, 1)):
                    events.append({"name": name, "ph": "X", "ts": at + begin, "dur": duration, "tid": tid,
                                   "pid": "CPU functions", "args": {}})
            (self.dir / "in").mkdir(exist_ok=True)
            (self.dir / "in" / ("rank_%d.json" % rank)).write_text(json.dumps(events))
        files = self.imported("in")
        for file in files.values():
            ranges = file.tables["ranges"]
            names = [file.text(n) for n in ranges["name"]]
            self.assertEqual(len(names), 32)
            depth = {name: int(d) for name, d in zip(names, ranges["depth"])}
            self.assertEqual([depth[n] for n in ("DistributedDataParallel.forward", "aten::linear", "aten::addmm")],
                             [0, 1, 2])
            category = {name: int(c) for name, c in zip(names, ranges["category"])}
            self.assertEqual((category["DistributedDataParallel.forward"], category["gloo:all_reduce"]), (2, 5))
        analysis = self.analysis(code=3)
        self.assertIn("Who waits for whom in communication through gloo is not recorded", analysis["verdict"])
        self.assertGreater(analysis["ranks"][0]["exposed_unsplit_ns"], 0)


class Calls(Case):
    def test_of_a_backend_that_the_trace_does_not_name(self):
        job = []
        for rank in range(2):
            trace = traces.Trace(rank, 2, backend=None)
            for i in range(8):
                trace.annotation("ProfilerStep#%d" % i, i * 10_000, 9_990)
                trace.operator("aten::mm", i * 10_000 + 100, 4_000)
                trace.operator("record_param_comms", i * 10_000 + 5_000, 3_000)
            job.append(trace)
        self.imported(*self.write(job))
        analysis = self.analysis(code=3)
        self.assertTrue(analysis["verdict"].startswith("Communication through torch.distributed is not recorded"),
                        analysis["verdict"])
        self.assertEqual([r["exposed_unsplit_ns"] for r in analysis["ranks"]],
                         [r["exposed_unsplit_ns"] for r in analysis["ranks"][:1]] * 2)
        self.assertAlmostEqual(analysis["summary"]["exposed_unsplit_ns"], 3_000_000, delta=10)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
