"""PyTorch programs with a backend that nobody records: unrecorded.py BUILD_DIR CASE"""
import json, os, unittest

from check import Case, DDP_TRAIN, LOCKSTEP, MPIRUN, PYTHON, needs_mpi, run, run_case


class Judged(Case):
    def traced(self, *words, ranks=MPIRUN, python=PYTHON):
        done = run(ranks + [LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "out", "--", python, *words], self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run([LOCKSTEP, "analyze", "-q", "out"], self.dir)
        with open(self.dir + "/out/analysis.json") as f:
            return done, json.load(f)

    def uses(self):
        meta = {self.file().text(r["key"]): self.file().text(r["value"]) for r in self.file().rows("meta")}
        facts = [dict(f.split("=", 1) for f in v.split("\t")) for k, v in meta.items()
                 if k.startswith("fact.torch_group_use")]
        return max(facts, key=lambda fact: int(fact["steps"]))


ANOTHER = """
import torch.distributed as dist
dist.Backend.register_backend("another", lambda store, rank, size, timeout: dist.ProcessGroupGloo(
    store, rank, size, timeout))
"""


# As of a PyTorch that does not tell of gloo's works: gloo is a backend without a source.
BLIND = """
import _lockstep.probe
_lockstep.probe.torch_observe = lambda: 0
"""


@needs_mpi
class Backend(Judged):
    """What nobody records is said first, and the exit code is 3."""

    def test_verdict(self):
        done, analysis = self.traced(self.script(BLIND + BUFFERS), self.dir + "/meeting", os.path.dirname(DDP_TRAIN),
                                     "plain")
        self.assertEqual(done.returncode, 3, done.stdout)
        for word in ("gloo", "not recorded", "DDP reduces its gradients", "MPI", "nccl"):
            self.assertIn(word, analysis["verdict"])
        self.assertIn("gloo is not recorded", " ".join(done.stdout.split()))
        loss = next(l for l in analysis["losses"] if l["name"] == "BackendNotCaptured")
        self.assertEqual(loss["severity"], "data_loss")
        self.assertEqual(analysis["run"]["steps"], 12)

    def test_calls_of_torch_distributed(self):
        script = self.script(ANOTHER + """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("another", init_method="file://" + sys.argv[1], rank=int(os.environ["OMPI_COMM_WORLD_RANK"]),
                        world_size=2)
parameter = torch.nn.Parameter(torch.ones(1 << 18))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for i in range(6):
    parameter.sum().backward()
    dist.all_reduce(parameter.grad)
    optimizer.step()
""")
        done, _ = self.traced(script, self.dir + "/meeting")
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn("another is not recorded", " ".join(done.stdout.split()))
        calls = [r for name, category, r in self.file().ranges() if name == "c10d::all_reduce"]
        self.assertEqual([(r["category"], r["payload"]) for r in calls], [(5, 4 << 18)] * 6)


BUFFERS = """
import os, sys, time, torch, torch.distributed as dist
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
sys.path.insert(0, sys.argv[2])
from ddp_train import reduce_over_mpi

class Batches(Dataset):
    def __len__(self): return 12
    def __getitem__(self, index):
        if MPI.COMM_WORLD.rank == MPI.COMM_WORLD.size - 1: time.sleep(0.02)
        return torch.randn(16, 64)

torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=MPI.COMM_WORLD.rank,
                        world_size=MPI.COMM_WORLD.size)
layers = [torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)]
if sys.argv[3] == "buffers": layers.insert(1, torch.nn.BatchNorm1d(64))
model = DistributedDataParallel(torch.nn.Sequential(*layers))
if sys.argv[3] != "plain": model.register_comm_hook(MPI.COMM_WORLD, reduce_over_mpi)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Batches(), batch_size=None):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
time.sleep(0.3)  # As in gloo_job.py.
dist.destroy_process_group()
"""


@needs_mpi
class Buffers(Judged):
    """The documented way around, gradients over MPI, with a model whose buffers DDP broadcasts over gloo."""

    def run_with(self, what, ranks=MPIRUN):
        return self.traced(self.script(BLIND + BUFFERS), self.dir + "/meeting", os.path.dirname(DDP_TRAIN), what, ranks=ranks)

    def test_broadcast_is_communication_and_said_first(self):
        done, analysis = self.run_with("buffers", MPIRUN[:-1] + ["3"])
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertTrue(analysis["verdict"].startswith("Communication through gloo is not recorded ("),
                        analysis["verdict"])
        self.assertIn("gloo was not recorded", analysis["replay"]["skipped"])
        self.assertIn("broadcast_buffers=False", analysis["verdict"])
        use = self.uses()
        self.assertEqual((use["steps"], use["used"], use["uncounted"]), ("12", "12", "0"))
        # The others wait in it for the rank whose data is late: no compute of theirs.
        file = self.file()
        broadcasts = [r for name, _, r in file.ranges() if name == "c10d::broadcast_coalesced"]
        self.assertEqual([r["category"] for r in broadcasts], [5] * 13)  # The first by DDP's constructor.
        inside = sum(int(r["duration_ns"]) for r in broadcasts)
        self.assertGreater(inside, 10 * 15_000_000)
        rank = analysis["ranks"][0]
        self.assertGreater(rank["exposed_unsplit_ns"], 10 * 15_000_000)

    def test_without_buffers_it_carries_nothing(self):
        done, analysis = self.run_with("none")
        self.assertNotIn("gloo is", analysis["verdict"])
        self.assertNotIn("BackendNotCaptured", [loss["name"] for loss in analysis["losses"]])
        self.assertLessEqual(int(self.uses()["used"]), 2)

    def test_no_what_if_about_it(self):
        self.run_with("buffers")
        done = run([LOCKSTEP, "whatif", "out"], self.dir)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("gloo was not recorded", done.stderr)


@needs_mpi
class Recorded(Judged):
    """The same with gloo recorded: the rank whose data is late is named in the first sentence, and why."""

    def test_late_data(self):
        done, analysis = self.traced(self.script(BUFFERS), self.dir + "/meeting", os.path.dirname(DDP_TRAIN), "buffers")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual([(s["rank"], s["cause"]) for s in analysis["stragglers"]], [(1, "input")], done.stdout)
        self.assertRegex(analysis["verdict"], r"^Rank 1 holds the other back: without what slows it, each [\d.]+ ms step would "
                                              r"be [\d.]+ ms shorter \(replayed\)\.$")
        (late,) = [f for f in analysis["findings"] if f["id"] == "straggler.arrival"]
        self.assertGreater(late["saves_ns_per_step"], 10_000_000)
        # Its gradients go over MPI, its buffers over gloo: both are seen, and rank 0 waits in the latter.
        self.assertEqual({row["op"] for row in analysis["collectives"]} & {"all-reduce", "broadcast"}, {"all-reduce", "broadcast"})
        self.assertNotIn("not recorded", done.stdout)


COUNTED = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(os.environ["OMPI_COMM_WORLD_RANK"]),
                        world_size=2)
group = dist.new_group([0, 1])
parameter = torch.nn.Parameter(torch.ones(8))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for i in range(10):
    parameter.sum().backward()
    dist.all_reduce(parameter.grad)
    if i % 2: dist.all_reduce(parameter.grad, group=group, async_op=True).wait()
    optimizer.step()
dist.barrier()
time.sleep(0.3)  # As in gloo_job.py.
dist.destroy_process_group()
"""


class Counted(Judged):
    """Operations of all groups, and which of them were waited for within a call, by the PyTorch there is."""

    def check(self, python):
        self.traced(self.script(BLIND + COUNTED), self.dir + "/meeting", python=python)
        use = self.uses()
        self.assertEqual({key: int(use[key]) for key in ("steps", "used", "operations", "covered", "uncounted")},
                         dict(steps=10, used=10, operations=15, covered=10, uncounted=0))

    def test_debian(self):
        self.check(PYTHON)

    @unittest.skipUnless(os.path.exists(os.environ.get("LOCKSTEP_TORCH2_PYTHON", "")), "no LOCKSTEP_TORCH2_PYTHON")
    def test_two(self):
        """Of PyTorch 2 a group makes the object of its backend anew each time."""
        self.check(os.environ["LOCKSTEP_TORCH2_PYTHON"])


if __name__ == "__main__":
    run_case(globals())
