#!/usr/bin/env python3
"""Live jobs, with and without Lockstep: results and exit codes are the same, and the rank files hold what was done.

usage: smoke_test.py BUILD_DIR [unittest arguments]
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "recover"), str(HERE.parents[1] / "hosts")]
import hosts as of_hosts  # noqa: E402
import jobs  # noqa: E402
from recover_test import recover, runs, words  # noqa: E402

COUNTED = [str(jobs.BUILD / "tests/counted"), "counts", "30", "5", "1"]  # It counts its calls itself.
VICTIM = str(jobs.BUILD / "tests/recover_victim")
LOSSES = {"RingFull", "NoRing", "SpoolWrite", "RequestUnknown", "CommUnidentified", "TorchHook", "TorchUnhooked"}


class Smoke(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory(prefix="lockstep-smoke-")
        self.addCleanup(held.cleanup)
        self.place = pathlib.Path(held.name)


class Gloo(Smoke):
    STEPS = 20

    def ranks(self, meeting, *lockstep):
        """(exit code, standard output) of both."""
        told = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "OMP_NUM_THREADS": "1"}
        started = [subprocess.Popen([*lockstep, jobs.PYTHON, HERE / "gloo_job.py", self.place / meeting, str(self.STEPS)], cwd=self.place,
                                    env={**jobs.ENVIRONMENT, **told, "RANK": rank, "LOCAL_RANK": rank}, stdout=subprocess.PIPE)
                   for rank in ("0", "1")]
        said = [process.communicate(timeout=300)[0] for process in started]
        return [(process.returncode, text) for process, text in zip(started, said)]

    def test_collectives_and_results(self):
        if subprocess.run([jobs.PYTHON, "-c", "import importlib.util as u, sys; sys.exit(not u.find_spec('torch'))"]).returncode != 0:
            self.skipTest("no PyTorch here")
        bare = self.ranks("bare")
        self.assertEqual([code for code, _ in bare], [0, 0])
        self.assertEqual(self.ranks("recorded", jobs.LOCKSTEP, "run", "-o", "run", "--quiet", "--after", "none", "--"), bare)
        run = jobs.Run(self.place / "run")
        files = run.files()
        self.assertEqual(list(files), ["rank-00000.h5", "rank-00001.h5"])
        for file in files.values():
            # CollectiveKind: 2 of each step are all-reduces, which are 1.
            self.assertEqual(collections.Counter(map(int, file.column("collectives", "kind"))), {1: 2 * self.STEPS, 2: 1, 5: 1, 6: 2})
            self.assertEqual(set(file.losses) & LOSSES, set())
        code, analysis, said = run.analyze()
        self.assertIn(code, (0, 3), said)
        trust = analysis["trust"]
        self.assertEqual([trust[name] for name in ("collectives", "unmatched_collectives", "mismatched_collectives", "clock_violations", "dropped")],
                         [2 * self.STEPS + 4, 0, 0, 0, 0])


class TwoHosts(unittest.TestCase):
    """Without a directory that both see, and with clocks 1,000 s apart."""

    def test_files_of_both_arrive(self):
        if reason := of_hosts.why_not():
            self.skipTest(reason)
        with of_hosts.Hosts(2, visible=[jobs.BUILD]) as hosts:
            mpirun = lambda *before: hosts.mpirun(1, [*before, *COUNTED], cwd=of_hosts.OWN, env=jobs.ENVIRONMENT, timeout=300)  # noqa: E731
            bare = mpirun()
            done = mpirun(jobs.LOCKSTEP, "run", "--after", "none", "--after-wait", "200", "--")
            self.assertEqual((sorted(done.stdout.splitlines()), done.returncode), (sorted(bare.stdout.splitlines()), bare.returncode), done.stderr)
            self.assertEqual(done.returncode, 0, done.stderr)
            own = [pathlib.Path(hosts.path(node, of_hosts.OWN)) for node in hosts.nodes]
            arrived, made = (sorted(path.glob("lockstep.out/2*/ranks/rank-*.h5")) for path in own)
            self.assertEqual(([path.name for path in arrived], [path.name for path in made]),
                             (["rank-00000.h5", "rank-00001.h5"], ["rank-00001.h5"]), done.stderr)
            self.assertEqual(arrived[1].read_bytes(), made[0].read_bytes())
            for rank, file in enumerate(map(jobs.RankFile, arrived)):
                lines = (line.split() for line in (own[rank] / f"counts-{rank}").read_text().splitlines())
                self.assertEqual(file.calls, {name: int(count) for name, count in lines})
                self.assertEqual(set(file.losses) & LOSSES, set())
            told = hosts.run("node1", [jobs.LOCKSTEP, "analyze", "--json", "-", "lockstep.out/latest"], cwd=of_hosts.OWN, env=jobs.ENVIRONMENT)
            analysis = json.loads(told.stdout)
            self.assertEqual([(row["rank"], row["node"]) for row in analysis["ranks"]], [(0, "node1"), (1, "node2")])
            trust = analysis["trust"]
            self.assertEqual([trust[name] for name in ("unmatched_collectives", "mismatched_collectives", "clock_violations", "dropped")], [0, 0, 0, 0])


class Killed(Smoke):
    """`kill -9` of a rank that says in a file how many marks it has made."""

    def job(self, name, *lockstep):
        """Its exit code, and the marks of both ranks."""
        counts = [self.place / f"{name}.{rank}" for rank in (0, 1)]
        with open(self.place / "log", "wb") as log:
            launcher = subprocess.Popen([*jobs.MPIRUN, "-np", "2", *lockstep, VICTIM, self.place / name], cwd=self.place, env=jobs.ENVIRONMENT,
                                        stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        begun = jobs.wait_until(lambda: all(words(path)[0] > 1000 for path in counts))
        jobs.kill(words(counts[1])[1])
        self.assertTrue(begun and jobs.wait_until(lambda: launcher.poll() is not None), (self.place / "log").read_text())
        pids = [pid for path in counts for pid in words(path)[1:] if pid != launcher.pid]
        # What the launcher has left is ended.
        if not jobs.wait_until(lambda: not any(map(runs, pids)), 10):
            for pid in filter(runs, pids):
                jobs.kill(pid)
            self.assertTrue(jobs.wait_until(lambda: not any(map(runs, pids))))
        return launcher.returncode, [words(path)[0] for path in counts]

    def test_what_was_recorded_is_recovered(self):
        bare, _ = self.job("bare")
        code, made = self.job("recorded", jobs.LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "run", "--")
        self.assertEqual(code, bare)
        run = jobs.Run(self.place / "run")
        self.assertIn(recover(run.directory)[0], (0, 3))
        files = run.files()
        self.assertEqual((list(files), run.spools()), (["rank-00000.h5", "rank-00001.h5"], []))
        for least, file in zip(made, files.values()):
            self.assertGreaterEqual(file.ranges["mark"] + file.losses.get("RingFull", 0), least)
        self.assertEqual(files["rank-00001.h5"].meta["exit_signal"], "9")


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result)
