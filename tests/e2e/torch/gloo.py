"""torch.distributed over gloo under `lockstep run`: gloo.py BUILD_DIR CASE [PYTHON]"""
import collections
import json
import pathlib
import shutil
import sys

from check import Case, DDP_TRAIN, HERE, JOB, LOCKSTEP, MPIRUN, PYTHON, buckets_of_job, needs_mpi, run, run_case

ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, BARRIER, BROADCAST, REDUCE, GATHER, SCATTER = 1, 2, 4, 5, 6, 7, 8, 9
INT64, FLOAT32, FLOAT64 = 7, 11, 12
TORCH_GROUP = 4


class Gloo(Case):
    def job(self, kind, *arguments, ranks=2, options=()):
        mpirun = MPIRUN[:-1] + [str(ranks)]
        done = run(mpirun + [LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "out", *options, "--", PYTHON,
                                  HERE + "/gloo_job.py", kind, self.dir + "/meeting", *arguments], self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def analyze(self, expected=0):
        done = run([LOCKSTEP, "analyze", "-q", "out"], self.dir)
        self.assertEqual(done.returncode, expected, done.stdout + done.stderr)
        with open(self.dir + "/out/analysis.json") as f:
            return json.load(f), " ".join(done.stdout.split())

    def works(self, rank):
        """Rows of collectives by time of the call, with the group they are on."""
        file = self.file("rank-%05d.h5" % rank)
        comms = file.rows("comms")
        rows = [dict(row, group=comms[row["comm"]]) for row in file.rows("collectives")]
        return sorted((r for r in rows if r["group"]["kind"] == TORCH_GROUP), key=lambda r: r["enqueue_begin_ns"])


@needs_mpi
class Works(Gloo):
    def test_kinds(self):
        """Each collective and message, as it was called."""
        self.job("kinds")
        expected = [(ALL_REDUCE, 400, FLOAT32, -1), (BROADCAST, 800, FLOAT64, 1), (REDUCE, 400, FLOAT32, 1),
                    (ALL_GATHER, 800, FLOAT32, -1), (GATHER, 800, FLOAT32, 1), (SCATTER, 800, FLOAT32, 1),
                    (ALL_TO_ALL, 400, FLOAT32, -1), (BARRIER, 0, 0, -1), (ALL_REDUCE, 56, INT64, -1)]
        for rank in (0, 1):
            rows = self.works(rank)
            found = [(r["kind"], r["bytes"], r["dtype"], r["root"]) for r in rows]
            if rank == 0:  # gloo does not tell who is no root what it will get.
                self.assertEqual(rows[5]["uneven"], 1)
                found[5] = expected[5]
            self.assertEqual(found, expected)
            self.assertEqual([r["seq"] for r in rows], list(range(len(expected))))
            for r in rows:
                self.assertLessEqual(r["enqueue_begin_ns"], r["begin_ns"])
                self.assertLess(r["begin_ns"], r["end_ns"])
            file = self.file("rank-%05d.h5" % rank)
            messages = [(r["direction"], r["peer_world_rank"], r["tag"], r["bytes"], r["outcome"])
                        for r in file.rows("p2p")]
            self.assertEqual(messages, [(rank, 1 - rank, 3, 400, 0), (rank, 1 - rank, 4, 400, 0)])
            self.assertFalse({"TorchHook", "RequestUnknown", "CommUnidentified"} & set(file.losses()))
        # The training thread was in each call until it had ended.
        calls = [r for name, _, r in self.file().ranges() if name == "c10d::all_reduce"]
        first = self.works(0)[0]
        self.assertLessEqual(calls[0]["begin_ns"], first["enqueue_begin_ns"])
        self.assertLessEqual(first["end_ns"], calls[0]["begin_ns"] + calls[0]["duration_ns"])
        analysis, text = self.analyze()
        self.assertEqual(analysis["trust"]["collectives"], 9)
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)
        self.assertEqual(analysis["trust"]["mismatched_collectives"], 0)
        self.assertEqual(analysis["p2p"]["matched"], 2)
        self.assertNotIn("not recorded", text)

    def test_groups(self):
        """Halves of the job call different numbers of collectives; DDP's own find the half that its model is on."""
        self.job("groups", ranks=4)
        analysis, _ = self.analyze()
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)
        self.assertEqual(analysis["trust"]["mismatched_collectives"], 0)
        self.assertNotIn("CommUnidentified", [loss["name"] for loss in analysis["losses"]])
        self.assertEqual(sorted(tuple(group["ranks"]) for group in analysis["groups"]), [(0, 1, 2, 3), (0, 2), (1, 3)])
        for rank in range(4):
            on_half = [r for r in self.works(rank) if r["group"]["size"] == 2]
            self.assertEqual([r["kind"] for r in on_half[:3 + rank % 2]], [ALL_REDUCE] * (3 + rank % 2))
            self.assertEqual(on_half[3 + rank % 2]["root"], 1)
            self.assertEqual(sum((r["kind"], r["bytes"]) == (ALL_REDUCE, 4 * 420) for r in on_half), 3)
            self.assertEqual([r["bytes"] for r in self.works(rank) if r["group"]["size"] == 4], [40])


    def test_groups_of_the_same_name(self):
        """A program that ends its groups and makes them again: nothing of the later ones is taken for the first ones'."""
        self.job("again")
        analysis, text = self.analyze()
        self.assertEqual(analysis["trust"]["collectives"], 3 * (4 + 4), text)
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0, text)
        self.assertEqual(len(analysis["groups"]), 6, text)
        for rank in (0, 1):
            self.assertEqual([r["bytes"] for r in self.works(rank)], [size for life in range(3) for size in 4 * [40, 80 + 4 * life]])


    def test_a_slow_stage(self):
        """Nothing but messages: the stage that sleeps is named, and priced by the replay, which knows who waits for them."""
        for how in ("calls", "works", "batches"):
            with self.subTest(how):
                shutil.rmtree(self.dir + "/out", ignore_errors=True)
                pathlib.Path(self.dir, "meeting").unlink(missing_ok=True)
                self.job("pipeline", how, "8")
                analysis, text = self.analyze()
                self.assertEqual([s["rank"] for s in analysis["stragglers"]], [1], text)
                # What the 32 ms cost beyond what the other stage does meanwhile.
                self.assertGreater(analysis["stragglers"][0]["price_ns_per_step"], 20e6, text)
                self.assertLess(analysis["stragglers"][0]["price_ns_per_step"], 40e6, text)
                self.assertEqual(analysis["stragglers"][0]["priced_by"], "replay", text)
                self.assertLess(analysis["replay"]["self_error"], 0.05, text)


@needs_mpi
class Apis(Gloo):
    def test_what_is_built_upon_them(self):
        """Meshes, groups split from others, batches of messages, DDP with uneven input, monitored_barrier."""
        self.job("apis", *["--split"] * (len(sys.argv) > 3))  # Of gloo since 2.15.
        analysis, text = self.analyze()
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0, text)
        self.assertEqual(analysis["trust"]["mismatched_collectives"], 0, text)
        self.assertEqual(analysis["p2p"]["unmatched"], 0, text)
        for rank in (0, 1):
            works, file = self.works(rank), self.file("rank-%05d.h5" % rank)
            count = collections.Counter((r["kind"], r["bytes"]) for r in works)
            # A mesh's, a split group's; DDP's gradients, of which the rank with less data makes one without any.
            self.assertEqual([count[ALL_REDUCE, size] for size in (44, 48, 1680)], [3, 4, 3], count)
            messages = {(r["direction"], r["peer_world_rank"], r["tag"], r["bytes"]) for r in file.rows("p2p")}
            self.assertLessEqual({(0, 1 - rank, 5, 200), (1, 1 - rank, 5, 200)}, messages)
            self.assertEqual(file.count("c10d::monitored_barrier"), 1)
            self.assertFalse({"TorchHook", "RequestUnknown", "CommUnidentified"} & set(file.losses()))

    def test_functional(self):
        """Who waits for one otherwise than for a work in Python."""
        old = run([PYTHON, "-c", "import torch; assert torch.__version__ >= '2'"], self.dir).returncode != 0
        for words in (["--future"], ["--futures"], *([] if old else ([], ["--compiled"]))):
            with self.subTest(words):
                shutil.rmtree(self.dir + "/out", ignore_errors=True)
                pathlib.Path(self.dir + "/meeting").unlink(missing_ok=True)
                self.job("functional", *words)
                analysis, said = self.analyze()
                self.assertEqual([each["rank"] for each in analysis["stragglers"]], [1], said)
                waits = [row for name, _, row in self.file("rank-00000.h5").ranges() if name == "c10d::wait"]
                self.assertEqual(len(waits), 41)
                self.assertGreater(sum(row["duration_ns"] for row in waits), 40 * 20_000_000)


@needs_mpi
class Reducer(Gloo):
    def test_results_and_buckets(self):
        """The same parameters to the last bit, and every bucket of DDP's own reducer."""
        words = [PYTHON, DDP_TRAIN, *JOB, "--plain-gloo", "--save"]
        plain = run(MPIRUN + words + ["plain.pt"], self.dir)
        traced = run(MPIRUN + [LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "out", "--", *words, "traced.pt"],
                          self.dir)
        self.assertEqual((plain.returncode, traced.returncode), (0, 0), traced.stderr)
        self.assertEqual(self.parameters("plain.pt"), self.parameters("traced.pt"))
        analysis, text = self.analyze()
        self.assertNotIn("not recorded", text)
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)
        sizes, parameters = buckets_of_job()
        buckets = analysis["buckets"]
        self.assertEqual(buckets["sizes"], sizes)
        self.assertEqual([row["parameters"] for row in buckets["rows"]], parameters)
        self.assertEqual((buckets["steps"], buckets["steps_matched"]), (6, 6))
        self.assertTrue(all(row["collectives"] == 6 for row in buckets["rows"]))
        for rank in (0, 1):
            steps = self.file("rank-%05d.h5" % rank).rows("steps")
            reduced = [(r["enqueue_begin_ns"], r["bytes"]) for r in self.works(rank) if r["kind"] == ALL_REDUCE]
            for step in steps[1:]:
                self.assertEqual([b for t, b in reduced if step["begin_ns"] <= t < step["end_ns"]], sizes)
            # No backward pass is over before what it hands over, however late a thread without a core would say so.
            for name, _, r in self.file("rank-%05d.h5" % rank).ranges():
                end = r["begin_ns"] + r["duration_ns"]
                if name == "backward":
                    self.assertLess(max([w["end_ns"] for w in self.works(rank)
                                         if r["begin_ns"] <= w["enqueue_begin_ns"] < end], default=0), end)

    def test_late_data(self):
        """Rank 1's data is 60 ms late in each step: rank 0 waits in the broadcast of BatchNorm's buffers."""
        self.job("batch_norm", "60")
        analysis, text = self.analyze()
        self.assertEqual([(s["rank"], s["cause"]) for s in analysis["stragglers"]], [(1, "input")], text)
        self.assertNotIn("not recorded", text)
        steps = [s for s in analysis["steps"] if s["complete"] and not s["warmup"]]
        waits = sorted(cell["exposed_wait_ns"] for s in steps for cell in s["ranks"] if cell["rank"] == 0)
        self.assertGreater(waits[len(waits) // 2], 45_000_000)

    def test_waits_of_the_program(self):
        """Sharded optimizers and parameters wait for works in Python: of what is exposed there a step would be shorter."""
        for kind, has in (("zero", ""), ("fsdp2", "import torch.distributed.fsdp as fsdp; fsdp.fully_shard")):
            if run([PYTHON, "-c", has], self.dir).returncode != 0:  # Not in 1.13.
                continue
            with self.subTest(kind):
                shutil.rmtree(self.dir + "/out", ignore_errors=True)  # Beside it the next run would go elsewhere.
                done = run(MPIRUN + [LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "out", "--", PYTHON,
                                          HERE + "/faults_job.py", self.dir + "/meeting-" + kind, "--kind", kind,
                                          "--elsewhere", "--work-ms", "3", "--layers", "6", "--width", "512", "--steps",
                                          "24"], self.dir)
                self.assertEqual(done.returncode, 0, done.stderr)
                file = self.file()
                steps = file.rows("steps")
                # On a CPU FSDP's calls wait by themselves.
                waiting = ("c10d::wait", "c10d::all_gather_single", "c10d::reduce_scatter_single")
                waits = [r for name, _, r in file.ranges() if name in waiting and r["begin_ns"] > steps[0]["begin_ns"]]
                self.assertGreaterEqual(len(waits), 2 * 24 if kind == "zero" else 12 * 24)
                analysis, text = self.analyze()
                self.assertNotIn("not recorded", text)
                summary = analysis["summary"]
                exposed = summary["exposed_wait_ns"] + summary["exposed_transfer_ns"]
                if kind == "fsdp2":
                    self.assertGreater(analysis["overlap"]["comm_cost_ns"], 0.5 * exposed, text)
                    # Its units are what is reduced, though by all-reduces: DDP's setting would do nothing.
                    self.assertIsNotNone(analysis["fsdp"], text)
                    self.assertEqual(len(analysis["fsdp"]["units"]), 6)
                    self.assertIsNone(analysis["buckets"])
                    self.assertNotIn("bucket_cap_mb", json.dumps(analysis))


if __name__ == "__main__":
    run_case(globals())
