"""What people write in training scripts, over gloo under `lockstep run`: written.py BUILD_DIR CASE [PYTHON]"""
import collections
import json
import os
import shutil
import sys

from check import DDP_TRAIN, HERE, LOCKSTEP, MPIRUN, PYTHON, needs_mpi, run, run_case
from gloo import ALL_GATHER, ALL_REDUCE, BARRIER, Gloo

FORWARD = 2
UNKNOWN = {"TorchHook", "TorchUnhooked", "RequestUnknown", "CommUnidentified", "P2pAnySource"}


class Compared(Gloo):
    def compared(self, script, *arguments, ranks=2, **environment):
        """The job with and without Lockstep: what each rank wrote, which is the same."""
        written = {}
        for kind, before in (("plain", []),
                             ("traced", [LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "out", "--"])):
            os.mkdir("%s/%s" % (self.dir, kind))
            done = run(MPIRUN[:-1] + [str(ranks), *before, PYTHON, "%s/%s" % (HERE, script), "%s/meeting-%s" % (self.dir, kind),
                                      "%s/%s" % (self.dir, kind), *arguments], self.dir, **environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            written[kind] = []
            for rank in range(ranks):
                with open("%s/%s/%d.json" % (self.dir, kind, rank)) as file:
                    written[kind].append(json.load(file))
        self.assertEqual(written["plain"], written["traced"])
        return written["traced"]

    def everything_is_matched(self, ranks=2):
        analysis, text = self.analyze()
        for count in ("unmatched_collectives", "mismatched_collectives"):
            self.assertEqual(analysis["trust"][count], 0, text)
        self.assertEqual(analysis["p2p"]["unmatched"] if analysis["p2p"] else 0, 0, text)
        self.assertNotIn("not recorded", text)
        for rank in range(ranks):
            self.assertFalse(UNKNOWN & set(self.file("rank-%05d.h5" % rank).losses()))
        self.assertFalse(UNKNOWN & {loss["name"] for loss in analysis["losses"]}, text)
        return analysis, text


@needs_mpi
class Written(Compared):
    def test_everything(self):
        """Mixed precision, recomputed activations, spawned loaders, unused parameters, no_sync, objects, coalesced and
        monitored calls, receives from any source."""
        ranks = self.compared("written_job.py")
        analysis, text = self.everything_is_matched()
        self.assertEqual(analysis["run"]["steps"], 4, text)
        for rank in (0, 1):
            file, works = self.file("rank-%05d.h5" % rank), self.works(rank)
            spans = collections.defaultdict(list)
            for name, _, r in file.ranges():
                spans[name].append((r["begin_ns"], r["begin_ns"] + r["duration_ns"]))
            within = lambda name: [[r for r in works if begin <= r["enqueue_begin_ns"] < end]  # noqa: E731
                                   for begin, end in spans[name]]
            self.assertEqual([len(each) for each in within("without reduction")], [0] * 8)
            self.assertEqual([len(each) for each in within("with reduction")], [2] * 4)
            begin = min(spans["without reduction"])[0]
            found = [[r["kind"], r["bytes"], r["dtype"], r["root"]] for r in works if r["enqueue_begin_ns"] >= begin]
            calls = ranks[rank]["calls"]
            self.assertEqual(len(found), len(calls), found)
            for one, expected in zip(found, calls):
                self.assertEqual(one, [one[1] if part is None else part for part in expected], found)
            messages = [(r["direction"], r["peer_world_rank"], r["tag"], r["bytes"]) for r in file.rows("p2p")]
            mine, other = [(0, 1 - rank, tag, 84) for tag in (7, 8)], [(1, 1 - rank, tag, 84) for tag in (7, 8)]
            self.assertEqual(messages, mine + other if rank == 0 else other + mine)
            self.assertEqual(works[-1]["kind"], BARRIER)
        self.assertEqual(analysis["p2p"]["matched"], 4, text)


@needs_mpi
class Sharded(Compared):
    def test_mesh(self):
        """Two by two ranks: what C++ starts on a group is on it, also before Python ever called it."""
        ranks = self.compared("sharded_job.py", "mesh", ranks=4)
        analysis, text = self.everything_is_matched(4)
        self.assertEqual(sorted(tuple(group["ranks"]) for group in analysis["groups"]),
                         [(0, 1), (0, 1, 2, 3), (0, 2), (1, 3), (2, 3)], text)
        for rank, job in enumerate(ranks):
            works = self.works(rank)
            for members, sizes in job["groups"].items():
                first = min(json.loads(members))
                stride = json.loads(members)[1] - first
                on = [r for r in works if (r["group"]["first_world_rank"], r["group"]["stride"], r["group"]["size"])
                      == (first, stride, 2)]
                self.assertEqual([(r["kind"], r["bytes"], r["seq"]) for r in on[:len(sizes)]],
                                 [(ALL_REDUCE, size, seq) for seq, size in enumerate(sizes)])
        # Steps: each pair's all-reduce in the forward pass, and each unit gathered twice.
        for rank in range(4):
            pair = [r for r in self.works(rank) if r["bytes"] == 4 * 16 * 64 and r["kind"] == ALL_REDUCE]
            self.assertEqual(len(pair), 6)

    def test_fsdp1(self):
        """FullyShardedDataParallel: four units, gathered forward and backward, and reduced."""
        self.compared("sharded_job.py", "fsdp")
        analysis, text = self.everything_is_matched()
        self.assertEqual(analysis["run"]["steps"], 6, text)
        unit_bytes = 4 * (64 * 64 + 64)
        for rank in (0, 1):
            steps = self.file("rank-%05d.h5" % rank).rows("steps")
            for step in steps[1:]:
                of_step = [(r["kind"], r["bytes"]) for r in self.works(rank)
                           if step["begin_ns"] <= r["enqueue_begin_ns"] < step["end_ns"]]
                self.assertEqual(collections.Counter(of_step), {(ALL_GATHER, unit_bytes): 8, (ALL_REDUCE, unit_bytes): 4})
            # The root's; FSDP has labels of the same name for each unit.
            forwards = [category for name, category, _ in self.file("rank-%05d.h5" % rank).ranges()
                        if name == "FullyShardedDataParallel.forward"]
            self.assertEqual(forwards.count(FORWARD), 6)
        self.assertEqual(len(analysis["fsdp"]["units"]), 4, text)


@needs_mpi
class Checked(Compared):
    def test_checked_calls(self):
        """TORCH_DISTRIBUTED_DEBUG=DETAIL compares calls over a backend of its own: the job's are on theirs."""
        self.compared("sharded_job.py", "mesh", ranks=4, TORCH_DISTRIBUTED_DEBUG="DETAIL")
        analysis, text = self.analyze()
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0, text)
        sizes = {False: set(), True: set()}  # Of works of the checks, and of the job's own.
        for rank in range(4):
            file = self.file("rank-%05d.h5" % rank)
            for r in self.works(rank):
                self.assertGreater(r["group"]["size"], 0)  # Of a known group.
                sizes[file.text(r["group"]["name"]).startswith("checks")].add((r["kind"], r["bytes"]))
        self.assertIn((ALL_REDUCE, 404), sizes[False])
        self.assertNotIn((ALL_REDUCE, 404), sizes[True])
        self.assertTrue(sizes[True])


@needs_mpi
class Profiled(Compared):
    def test_profiler_in_the_job(self):
        """A torch.profiler of the job's own sees what it sees without Lockstep; its traces are imported, and say what they lack."""
        self.compared("profiled_job.py")
        self.everything_is_matched()
        for rank in (0, 1):
            steps = self.file("rank-%05d.h5" % rank).rows("steps")
            self.assertEqual(len(steps), 8)
            for step in steps[2:]:  # The buckets of 33 KB are one layer each; another group has the last one's.
                of_step = [(r["kind"], r["bytes"]) for r in self.works(rank)
                           if step["begin_ns"] <= r["enqueue_begin_ns"] < step["end_ns"]]
                self.assertEqual(of_step.count((ALL_REDUCE, 132)), 1)
                self.assertEqual(sum(size for kind, size in of_step if kind == ALL_REDUCE), 132 + 4 * 4 * (64 * 64 + 64))
        for kind in ("plain", "traced"):
            done = run([LOCKSTEP, "analyze", "%s/%s" % (self.dir, kind), "--json", "-"], self.dir)
            self.assertEqual(done.returncode, 3, done.stderr)  # gloo's events do not say which group they are on.
            analysis = json.loads(done.stdout)
            self.assertEqual((analysis["run"]["ranks"], analysis["run"]["steps"]), (2, 3))
            (loss,) = [loss for loss in analysis["losses"] if loss["name"] == "BackendNotCaptured"]
            self.assertIn("lockstep run", loss["detail"])


@needs_mpi
class Answers(Gloo):
    def test_replay(self):
        """A DDP job over gloo has the answers of one over MPI: overlap, the curve of bucket caps, what-if."""
        words = [PYTHON, DDP_TRAIN, "--steps", "20", "--width", "384", "--layers", "6", "--batch", "16", "--bucket-cap-mb",
                 "0.6", "--plain-gloo"]
        # Of 20 steps, not all transfers of which need have grown with their size: then there is no curve, and it is asked again.
        for _ in range(4):
            shutil.rmtree(self.dir + "/out", ignore_errors=True)
            done = run(MPIRUN + [LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "out", "--", *words], self.dir)
            self.assertEqual(done.returncode, 0, done.stderr)
            analysis, text = self.analyze()
            overlap, buckets = analysis["overlap"], analysis["buckets"]
            if buckets["curve"]:
                break
        for name in ("t_actual_ns", "t_free_comm_ns", "t_best_ns"):
            self.assertGreater(overlap[name], 0, text)
        self.assertEqual(overlap["comm_cost_ns"], overlap["t_actual_ns"] - overlap["t_free_comm_ns"])
        curve = {point["buckets"]: point for point in buckets["curve"]}
        self.assertIn(len(buckets["sizes"]), curve)  # As it is.
        self.assertTrue(curve[1]["one_bucket"])
        self.assertTrue(buckets["exact_sizes"])
        self.assertLessEqual(buckets["steps"] - buckets["steps_matched"], 1)  # One may end while its last bucket moves.
        self.assertGreater(buckets["steps"], 8)  # Of 20; the first ones may be a warm-up.
        done = run([LOCKSTEP, "whatif", "out", "-q", "--json", "-"], self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        whatif = json.loads(done.stdout)
        answers = {answer["question"]: answer for answer in whatif["answers"]}
        self.assertLessEqual({"communication free", "perfect schedule", "equal work on all ranks",
                              "all gradients in one bucket"}, set(answers))
        free = answers["communication free"]
        self.assertEqual(free["step_ns"] + free["gain_ns"], whatif["replayed_step_ns"])
        self.assertEqual(free["gain_ns"], overlap["comm_cost_ns"])  # One replay.
        self.assertLess(whatif["self_error"], 0.3)
        # A thread of gloo's carries them: whether what the ranks would wait for otherwise was seen, and whether larger ones
        # took longer, depends on the run.
        for one in whatif["unanswered"]:
            self.assertIn(one["question"], ("no overlap", "bandwidth x 2, latency x 1"))
            self.assertTrue(one["why"])


if __name__ == "__main__":
    run_case(globals())
