"""Traces of several ranks that a tool merged into one file: merged_test.py BUILD_DIR [-v] CASE"""

import sys
import unittest

import import_test
import traces
from import_test import Case

# Tables that events fill, and the columns that number rows of others: these differ with the order of a file's events.
TABLES = {"kernels": ("shape",), "copies": (), "sync": (), "api": ("thread",), "gpu_memory": (), "ranges": ("thread",),
          "steps": ("thread",), "collectives": ("thread", "kernel"), "comms": (), "threads": ("thread", "process")}


class Merged(Case):
    def rows(self, file, table):
        """All rows of a table in no order, texts as such."""
        columns = {name: values.tolist() for name, values in file.tables[table].items() if name not in TABLES[table]}
        if "name" in columns:
            columns["name"] = [file.text(name) for name in columns["name"]]
        return sorted(map(str, (dict(zip(columns, row)) for row in zip(*columns.values()))))

    def check(self, job, code=0, how=None, order=None, inferred=True, **more):
        """Each rank of the merged file is as its own file would be."""
        apart = self.imported(*self.write(job), run="apart", options=["--force"])
        given = job if order is None else [job[i] for i in order]
        number = {trace.rank: i for i, trace in enumerate(given)}
        label = None if how is None else lambda i: how % given[i].rank
        path = traces.write(traces.merged(given, label=label, **more), self.dir / "in" / "all.json.gz")
        together = self.imported(path, run="together", code=code, options=["--force"])
        self.assertEqual(sorted(together), sorted(apart))
        for rank, file in apart.items():
            # Without labels, ranks are numbered as the file has them.
            at = rank if how else number[rank]
            for table in TABLES:
                if how or order is None or table != "comms":
                    self.assertEqual(self.rows(file, table), self.rows(together[at], table), "rank %d: %s" % (rank, table))
            self.assertEqual(together[at].losses.get("ImportRankInferred"), 1 if inferred else None)
            self.assertNotIn("ImportLaunchMissing", together[at].losses)
        if order is None:
            self.assertEqual(import_test.terms(self.analysis("together", code=code)),
                             import_test.terms(self.analysis("apart")))
        return together

    def job(self, ranks, device=None, same_pid=False, numbers_apart=False, **more):
        """`numbers_apart`: no two ranks' launches have the same number."""
        job = []
        for rank in range(ranks):
            trace = traces.Trace(rank, ranks, device=device, **more)
            trace.correlation += 10_000 * rank if numbers_apart else 0
            for i, number in enumerate((10, 11, 12)):
                traces.step(trace, number, i * traces.STEP_US, late=100 * rank)
            job.append(trace)
        if same_pid:
            for trace in job:
                for event in trace.events:
                    event["pid"] = job[0].pid if event["pid"] == trace.pid else event["pid"]
                trace.pid = job[0].pid
        return job

    def test_labels(self):
        for ranks in (2, 8):
            together = self.check(self.job(ranks), how="[TP%02d-DP00-PP00-EP00]")
            self.assertEqual(together[1].executables, ["python3"])
            self.assertIn("all.json.gz (TP01-DP00-PP00-EP00): rank 1 was inferred from its place among the ranks of its file",
                          " ".join(self.lockstep("analyze", "together", "--explain", "trust").stdout.split()))

    def test_labels_of_other_words(self):
        """A label that states the rank is no guess."""
        self.check(self.job(3), how="rank%d", code=0, inferred=False)

    def test_labels_of_equal_processes_and_devices(self):
        """In containers every rank may be process 1000, with one device 0."""
        for by_time in (False, True):
            self.check(self.job(2, device=0, same_pid=True), how="[DP%d]", by_time=by_time)

    def test_labels_in_metadata(self):
        for by_time in (False, True):
            self.check(self.job(2), how="[TP%02d]", metadata=True, by_time=by_time)
        self.check(self.job(2, device=0), how="[TP%02d]", metadata=True)

    def test_order_of_labels(self):
        self.check(self.job(4), how="[TP%02d]", order=(2, 0, 3, 1))
        job = self.job(4)
        places = ("[TP01-DP00-PP01-EP00]", "[TP00-DP01-PP00-EP00]", "[TP01-DP00-PP00-EP00]", "[TP00-DP00-PP01-EP00]")
        path = traces.write(traces.merged(job, label=lambda i: places[i]), self.dir / "in" / "places.json")
        files = self.imported(path, run="places")
        self.assertEqual([int(files[rank].column("kernels", "device")[0]) for rank in range(4)], [2, 1, 3, 0])

    def test_processes(self):
        for ranks in (2, 8):
            self.check(self.job(ranks))
        self.check(self.job(2), order=(1, 0))

    def test_processes_with_one_device(self):
        """Equal devices, streams and numbers of launches: the block of the file decides."""
        self.check(self.job(3, device=0))

    def test_processes_by_time(self):
        """Then the numbers of the launches decide, whatever the devices are."""
        for device in (None, 0):
            self.check(self.job(2, device=device, numbers_apart=True), by_time=True)

    def test_facts_are_not_each_ranks_own(self):
        """distributedInfo is that of one of the merged files, or of none."""
        together = self.check(self.job(2), how="[TP%02d]")
        self.assertEqual([together[rank].meta["rank"] for rank in (0, 1)], ["0", "1"])
        self.assertEqual({file.meta["world_size"] for file in together.values()}, {"2"})
        path = traces.write(traces.merged(self.job(2), facts=False), self.dir / "in" / "bare.json")
        bare = self.imported(path, run="bare")
        self.assertEqual({file.meta["world_size"] for file in bare.values()}, {"2"})
        self.assertEqual({file.losses["ImportWorldSizeUnknown"] for file in bare.values()}, {1})

    def test_windows_of_the_profiler(self):
        """Each rank's own profiler cuts its last step, whatever the others' do."""
        job = self.job(2)
        job[0].events.append({"ph": "i", "s": "g", "name": "Record Window End", "pid": "Traces", "tid": "Trace PyTorch Profiler",
                              "ts": job[0].ts(25_000)})
        for how in ("[TP%02d]", None):
            together = self.check(job, how=how)
            self.assertEqual([list(together[r].column("steps", "complete")) for r in (0, 1)], [[1, 1, 0], [1, 1, 1]])

    def test_what_cannot_be_told(self):
        """Sorted by time, with equal numbers of launches and one device: no guess is made."""
        path = traces.write(traces.merged(self.job(2, device=0), by_time=True), self.dir / "in" / "all.json")
        done = self.lockstep("import", "kineto", path, "-o", "run", code=1)
        self.assertIn("events of 2 ranks that a tool merged", done.stderr)
        self.assertIn("give the ranks' own traces", done.stderr)

    def test_one_rank_stays_one(self):
        """Processes that launch nothing and mark no step are no ranks: GPUs, helpers, the process of the steps."""
        trace = self.job(1)[0]
        trace.event("cpu_op", "aten::copy_", 100, 5, 7, 4711)
        for pid in range(8):
            trace.events.append({"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "ts": trace.ts(0),
                                 "args": {"labels": "GPU %d" % pid}})
        for event in trace.events:  # Another process launches what the one with the steps asks for.
            if event.get("cat") == "cuda_runtime":
                event["pid"] = 4712
        files = self.imported(traces.write(trace, self.dir / "in" / "one.json"))
        self.assertEqual(sorted(files), [0])
        self.assertEqual(files[0].rows("processes"), 3)

    def test_one_label(self):
        """A label alone makes no second rank, and is no part of the process's number."""
        path = traces.write(traces.merged(self.job(1), label=lambda i: "[TP00]"), self.dir / "in" / "one.json")
        files = self.imported(path)
        self.assertEqual(sorted(files), [0])
        self.assertEqual(files[0].column("processes", "pid").tolist(), [1000])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
