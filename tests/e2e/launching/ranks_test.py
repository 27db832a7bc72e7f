"""Who is which rank where no launcher tells the agents: what the ranks' own communication uses counts.

usage: ranks_test.py BUILD_DIR Class

Spawned    ranks of torch.multiprocessing.spawn below one agent, in a shell whose RANK speaks of another job, twice
Windows    ranks of torch.multiprocessing.spawn that record different steps, each as it says itself
Missing    a rank that nobody records: every place that counts ranks says so
"""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
try:
    import jobs
except ImportError:
    print("skipped: no h5py")
    sys.exit(77)

TRAIN = str(pathlib.Path(__file__).resolve().parent / "train.py")
STEPS = 6


class Case(unittest.TestCase):
    def setUp(self):
        if jobs.run([jobs.PYTHON, "-c", "import torch"], "/").returncode != 0:
            self.skipTest("no PyTorch")
        self.dir = tempfile.mkdtemp(prefix="lockstep-e2e-")

    def tearDown(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def check(self, words, code=0, env=None):
        done = jobs.run(words, self.dir, dict(env or {}, OMP_NUM_THREADS="1"))
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done.stdout.decode(), " ".join(done.stderr.decode().split())

    def the_run(self):
        runs = [p for p in pathlib.Path(self.dir, "lockstep.out").glob("2*") if p.is_dir()]
        self.assertEqual(len(runs), 1, runs)
        return runs[0]


class Spawned(Case):
    def test_each_process_is_the_rank_of_its_group(self):
        job = f"'{jobs.PYTHON}' '{TRAIN}' spawn --steps {STEPS}"
        # Two jobs below one agent, one after the other; variables of a third one.
        out, said = self.check([jobs.LOCKSTEP, "run", "--", "sh", "-c", f"{job} --nprocs 3; {job} --nprocs 2"],
                               env={"RANK": "3", "WORLD_SIZE": "8"})
        self.assertEqual(sorted(out.split("\n"))[1:], ["rank 0 of 2 done", "rank 0 of 3 done", "rank 1 of 2 done",
                                                       "rank 1 of 3 done", "rank 2 of 3 done"])
        self.assertIn("rank 0 of 2 is rank 3 of 8 by RANK and WORLD_SIZE of its environment (so are 1 others): recorded "
                      "as what its communication uses", said)
        self.assertIn("ranks came together more than once (a restart, or several jobs): the last 2 are analysed, files "
                      "of 3 from before", said)
        run = self.the_run()
        files = jobs.Run(run).files()
        ranks = {int(f.meta["rank"]): f for f in files.values() if "rank" in f.meta}
        self.assertEqual(sorted(ranks), [0, 1], {name: f.meta for name, f in files.items()})
        for file in ranks.values():
            self.assertEqual((file.meta["world_size"], file.meta["rank_source"], file.rows("steps")), ("2", "group", STEPS))
        self.assertEqual(sorted(f.meta["world_size"] for f in files.values() if f.meta.get("process_role") ==
                                "rank of an earlier world"), ["3", "3", "3"])
        self.assertEqual(json.loads((run / "manifest.json").read_text())["world_size"], 2)
        _, analysis, _ = jobs.Run(run).analyze()
        self.assertEqual((analysis["run"]["ranks"], analysis["run"]["ranks_missing"], analysis["run"]["steps"]),
                         (2, [], STEPS))
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)
        self.assertGreater(analysis["trust"]["collectives"], STEPS - 1)
        shown = json.loads(self.check([jobs.LOCKSTEP, "info", run, "--json", "-"])[0])
        self.assertEqual((shown["world_size"], [one["rank"] for one in shown["ranks"]], shown["ranks_missing"]),
                         (2, [0, 1], []))


class Windows(Case):
    def record(self, how, *options):
        """Rank -> (its file, what it says that it recorded); analysis."""
        out, _ = self.check([jobs.LOCKSTEP, "run", "--after", "none", "-o", "out", *options, "--", jobs.PYTHON,
                             str(pathlib.Path(__file__).resolve().parent / "windows_job.py"), how])
        told = {one["rank"]: one for one in map(json.loads, out.splitlines())}
        run = jobs.Run(pathlib.Path(self.dir, "out"))
        ranks = {int(f.meta["rank"]): f for f in run.files().values() if "rank" in f.meta}
        self.assertEqual((sorted(ranks), sorted(told)), ([0, 1, 2], [0, 1, 2]))
        for rank, file in ranks.items():
            told_here = told[rank]
            self.assertEqual(told_here["seen"], told_here["wanted"], (rank, "lockstep.recording()"))
            self.assertEqual({name: count for name, count in file.ranges.items() if name.startswith("work")},
                             {f"work {step}": 1 for step in told_here["wanted"]}, rank)
            steps = [int(i) for i, whole in zip(file.column("steps", "index"), file.column("steps", "complete")) if whole]
            self.assertEqual(steps, told_here["whole"], rank)
        code, analysis, said = run.analyze()
        self.assertEqual(code, 0, said)
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)
        # What all ranks recorded, and nothing else.
        common = sorted(set.intersection(*(set(one["whole"]) for one in told.values())))
        window = analysis["run"]["window"]
        self.assertEqual(list(range(window["first_step"], window["last_step"] + 1)), common)
        self.assertEqual(analysis["run"]["steps"], len(common))
        return analysis

    def test_a_schedule_each(self):
        self.record("profile")

    def test_start_and_stop(self):
        self.record("hand")
        shutil.rmtree(pathlib.Path(self.dir, "out"))
        self.record("hand", "--start", "off")

    def test_a_late_rank(self):
        """It begins its steps when the others' windows are over, and some of them have ended."""
        self.record("late")

    def test_steps_of_the_command(self):
        self.record("command", "--steps", "3:6")


class Missing(Case):
    def test_every_place_says_which_ranks_are_there(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        rank = lambda r: [jobs.PYTHON, TRAIN, "tcp", "--nprocs", "3", "--steps", str(STEPS), "--where",  # noqa: E731
                          f"127.0.0.1:{port}", "--rank", str(r)]
        outside = subprocess.Popen(rank(2), cwd=self.dir, env=dict(jobs.ENVIRONMENT, OMP_NUM_THREADS="1"),
                                   stdout=subprocess.DEVNULL)
        two = " ".join(rank(1)) + " & " + " ".join(rank(0)) + "; wait"
        try:
            _, said = self.check([jobs.LOCKSTEP, "run", "--after", "none", "--", "sh", "-c", two])
            self.assertEqual(outside.wait(), 0)
        finally:
            outside.kill()
            outside.wait()
        sentence = "2 of 3 ranks recorded: nothing is there of rank 2"
        self.assertIn(sentence, said)
        run = self.the_run()
        out, _ = self.check([jobs.LOCKSTEP, "analyze", run], 3)
        self.assertIn(sentence + ", and waiting for it is not seen.", " ".join(out.split()))
        out, _ = self.check([jobs.LOCKSTEP, "doctor", run])
        self.assertIn(sentence, out)
        out, _ = self.check([jobs.LOCKSTEP, "info", run], 3)
        self.assertTrue(out.startswith(sentence + "\n  ranks/rank-00000.h5 to ranks/rank-00000.p2.h5\n"), out[:300])


if __name__ == "__main__":
    case = globals()[sys.argv[2]]
    jobs.leave(unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(case)))
