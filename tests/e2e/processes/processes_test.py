#!/usr/bin/env python3
"""The processes of a slot: what a launched program starts beside itself. Nobody's
output changes, whoever uses a source has its own file, nobody else costs anything.

usage: processes_test.py BUILD_DIR CASE [TEST...]
"""

import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402

CHILDREN, STATIC = str(jobs.BUILD / "tests/processes_children"), str(jobs.BUILD / "tests/processes_static")
HERE = pathlib.Path(__file__).resolve().parent


class Case(unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="lockstep-processes-")
        self.addCleanup(self.temporary.cleanup)
        self.before = jobs.segments()

    def both(self, *words, env=None, options=(), view=lambda text: text, code=0, extra_seconds=6):
        """Bare and traced, compared; the trace's files."""
        place = pathlib.Path(self.temporary.name) / "job"
        place.mkdir()
        bare = jobs.run(words, cwd=place, env=env)
        for path in place.iterdir():
            path.unlink()
        traced = jobs.run([jobs.LOCKSTEP, "run", "--after", "none", *options, "-o", "run", "--", *words], cwd=place,
                          env=env, timeout=120 + jobs.on_this_machine(extra_seconds))
        self.assertEqual(bare.returncode, code, bare.stderr)
        self.assertEqual(traced.returncode, bare.returncode, traced.stderr)
        self.assertEqual(view(traced.stdout), view(bare.stdout))
        self.assertEqual(view(jobs.without_ours(traced.stderr)), view(bare.stderr))
        self.assertLess(traced.seconds, bare.seconds + jobs.on_this_machine(extra_seconds))
        self.assertEqual([path for path in jobs.segments() - self.before
                          if not os.path.exists("/proc/" + path.rsplit("-", 1)[1])], [])
        self.run_dir, self.bare, self.traced = jobs.Run(place / "run"), bare, traced
        return self.run_dir.files()

    def ranges(self, files):
        total = {}
        for file in files.values():
            for name, count in file.ranges.items():
                total[name] = total.get(name, 0) + count
            for loss in ("NoRing", "RingFull", "UnknownRecord", "SpoolBlock"):
                self.assertNotIn(loss, file.losses)
        return total

    def names(self, count):
        return ["rank-00000.h5"] + ["rank-00000.p%d.h5" % n for n in range(2, count + 1)]


class Children(Case):
    def check(self, words, child_ranges, files=1, code=0):
        found = self.both(CHILDREN, *words, code=code)
        expected = {"parent": 10, **child_ranges}
        self.assertEqual(self.ranges(found), expected)
        self.assertEqual(sorted(found), sorted(self.names(files)))
        main = found["rank-00000.h5"]
        self.assertEqual(main.ranges["parent"], 10)
        # The main process's file names all that used a source, with their parents.
        self.assertEqual(main.executables, ["processes_children"] * files)
        if files > 1:
            self.assertEqual(set(main.column("processes", "parent_pid")[1:]), {main.column("processes", "pid")[0]})
        return found

    def test_fork(self):
        self.check(["fork"], {})

    def test_forked_child_uses_a_source(self):
        self.check(["fork_uses"], {"child": 5}, 2)

    def test_forked_by_a_thread(self):
        self.check(["forked_thread"], {"child": 5, "thread": 5}, 2)

    def test_fork_and_exec(self):
        self.check(["fork_exec"], {})

    def test_system(self):
        self.check(["system"], {})

    def test_popen(self):
        self.check(["popen"], {})

    def test_vfork(self):
        self.check(["vfork"], {})

    def test_spawn(self):
        self.check(["spawn"], {"child": 5}, 2)

    def test_without_environment(self):
        self.check(["env_i"], {})

    def test_libraries_come_and_go(self):
        self.check(["dlmopen"], {"dlopen": 20})


class Many(Case):
    def test_short_lived_children_leave_nothing(self):
        found = self.both(CHILDREN, "swarm", "50")
        self.assertEqual(sorted(found), self.names(1))
        self.assertEqual(found["rank-00000.h5"].executables, ["processes_children"])

    def test_more_children_than_places(self):
        # 256 places (core/ring_layout.h). Each child that used a source has a file: some 70 ms of a core to write.
        found = self.both(CHILDREN, "users", "270", extra_seconds=60)
        self.assertEqual(self.ranges(found), {"parent": 10, "child": 1350})
        self.assertEqual(len(found), 271)

    def test_threads_that_end(self):
        found = self.both(CHILDREN, "threads", "400")
        self.assertEqual(self.ranges(found), {"parent": 10, "thread": 2000})
        file = found["rank-00000.h5"]
        names = {file.text(name) for name in file.column("threads", "name")}
        self.assertLessEqual({"worker-%d" % i for i in range(400)}, names)
        self.assertEqual(file.rows("threads"), 401)


class Scripts(Case):
    def test_script(self):
        found = self.both("bash", "-c", "%s spawn; echo between; %s fork" % (CHILDREN, CHILDREN))
        self.assertEqual(self.ranges(found), {"parent": 20, "child": 5})

    def test_script_that_execs(self):
        found = self.both("bash", "-c", "cd /; exec %s fork" % CHILDREN)
        self.assertEqual(self.ranges(found), {"parent": 10})
        self.assertEqual(sorted(found), self.names(1))

    def test_static_program(self):
        if not os.path.exists(STATIC):
            self.skipTest("no static C++ library")
        found = self.both(STATIC, "fork")
        self.assertEqual(self.ranges(found), {})
        # From a static program the variables pass on to what it starts.
        found_by = self.run_again(STATIC, "spawn_dynamic", CHILDREN)
        self.assertEqual(self.ranges(found_by).get("child"), 5)

    def run_again(self, *words):
        place = pathlib.Path(self.temporary.name) / "again"
        place.mkdir()
        done = jobs.run([jobs.LOCKSTEP, "run", "--after", "none", "-o", "run", "--", *words], cwd=place)
        self.assertEqual(done.returncode, 0, done.stderr)
        return jobs.Run(place / "run").files()

    def test_daemon_outlives_the_run(self):
        said = pathlib.Path(self.temporary.name) / "said"
        found = self.run_again(CHILDREN, "daemon", said)
        self.assertEqual(self.ranges(found), {"parent": 10, "daemon": 5})
        end = time.monotonic() + 120
        while not said.exists() or said.read_text() != "over\n":
            self.assertLess(time.monotonic(), end, "the daemon came to harm")
            time.sleep(0.02)

    def test_mpi_program_with_children(self):
        if not jobs.have("mpirun"):
            self.skipTest("no Open MPI")
        program = ("import subprocess, sys; from mpi4py import MPI; w = MPI.COMM_WORLD; w.barrier()\n"
                   "subprocess.run([sys.argv[1], 'uses'], check=True); w.barrier(); print(w.rank)")
        place = pathlib.Path(self.temporary.name)
        done = jobs.run([*jobs.MPIRUN, "-np", "2", jobs.LOCKSTEP, "run", "--after", "none", "-o", "run", "--",
                         jobs.PYTHON, "-c", program, CHILDREN], cwd=place)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = jobs.Run(place / "run").files()
        self.assertEqual(sorted(found), ["rank-00000.h5", "rank-00000.p2.h5", "rank-00001.h5", "rank-00001.p2.h5"])
        for rank in range(2):
            self.assertEqual(found["rank-0000%d.h5" % rank].calls.get("MPI_Barrier"), 2)
            self.assertEqual(found["rank-0000%d.p2.h5" % rank].ranges, {"child": 5})
        code, analysis, said = jobs.Run(place / "run").analyze()
        self.assertEqual(code, 0, said)
        self.assertEqual(analysis["run"]["ranks"], 2)
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)


class Python(Case):
    POOL = ("import ctypes, multiprocessing, sys\n"
            "def work(n):\n"
            "    probe = ctypes.CDLL(None)\n"
            "    if hasattr(probe, 'lockstep_probe_mark'): probe.lockstep_probe_mark(b'task')\n"
            "    return n * n\n"
            "if __name__ == '__main__':\n"
            "    context = multiprocessing.get_context(sys.argv[1])\n"
            "    with context.Pool(2) as pool: print(pool.map(work, range(20), chunksize=1))\n")

    def pool(self, method):
        script = pathlib.Path(self.temporary.name) / "pool.py"
        script.write_text(self.POOL)
        found = self.both(jobs.PYTHON, script, method)
        self.assertEqual(self.ranges(found).get("task"), 20)

    def test_fork(self):
        self.pool("fork")

    def test_spawn(self):
        self.pool("spawn")

    def test_forkserver(self):
        self.pool("forkserver")

    def test_idle_workers_leave_no_file(self):
        script = pathlib.Path(self.temporary.name) / "idle.py"
        script.write_text("import multiprocessing\n"
                          "if __name__ == '__main__':\n"
                          "    with multiprocessing.get_context('spawn').Pool(2) as pool: print(pool.map(abs, [-1, 2]))\n")
        found = self.both(jobs.PYTHON, script)
        self.assertEqual(len(found), 1)


class Torchrun(Case):
    """Workers are ranks, wherever `lockstep run` stands."""

    def setUp(self):
        super().setUp()
        if jobs.run([jobs.PYTHON, "-c", "import torch.distributed.run"], cwd="/").returncode != 0:
            self.skipTest("no PyTorch")
        # Redirected and copied: torch 1.13 under Python 3.11 fails with its default (Std(0) of an IntFlag is None).
        self.torchrun = [jobs.PYTHON, "-m", "torch.distributed.run", "--nproc_per_node", "2", "-r", "1", "-t", "1"]

    def check(self, words, files):
        place = pathlib.Path(self.temporary.name)
        done = jobs.run(words, cwd=place, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.split(b"\n")),
                         [b"", b"[default0]:worker 0 of 2", b"[default1]:worker 1 of 2"])
        found = jobs.Run(place / "run").files()
        self.assertEqual(sorted(found), files)
        seen = {}
        for file in found.values():
            rank = file.meta["rank"]
            seen[rank] = file.ranges
            self.assertEqual(file.meta["world_size"], "2")
            self.assertEqual(file.ranges, {"rank " + rank: 4})
        self.assertEqual(sorted(seen), ["0", "1"])
        code, analysis, said = jobs.Run(place / "run").analyze()
        self.assertEqual(code, 3, said)  # Two ranks that never communicate are suspicious.
        self.assertEqual(analysis["run"]["ranks"], 2)
        self.assertEqual(analysis["run"]["ranks_missing"], [])
        self.assertEqual(analysis["run"]["steps"], 4)

    def test_inside_the_slot(self):
        # Behind env it is a program like any other; by itself it is a launcher, whose workers get an agent each.
        self.check([jobs.LOCKSTEP, "run", "--after", "none", "-o", "run", "--", "env", *self.torchrun, HERE / "worker.py"],
                   ["rank-00000.h5", "rank-00000.p2.h5"])

    def test_mpi_worlds_of_one(self):
        """Each worker's MPI_COMM_WORLD is its own: their collectives are not one another's."""
        if jobs.run([jobs.PYTHON, "-c", "import mpi4py"], cwd="/").returncode != 0:
            self.skipTest("no mpi4py")
        place = pathlib.Path(self.temporary.name)
        done = jobs.run([jobs.LOCKSTEP, "run", "--after", "none", "-o", "run", "--", *self.torchrun, HERE / "worlds_of_one.py"],
                        cwd=place, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        _, analysis, said = jobs.Run(place / "run").analyze()
        self.assertEqual(analysis["run"]["ranks"], 2, said)
        self.assertEqual([(row["op"], row["count"], row["wait_ns_median"]) for row in analysis["collectives"]
                          if row["bytes"] == 8000], [("all-reduce", 30, 0)] * 2, said)
        self.assertEqual((analysis["trust"]["clock_violations"], analysis["trust"]["unmatched_collectives"]), (0, 0), said)

    def test_around_the_launcher(self):
        self.check([jobs.LOCKSTEP, "run", "--after", "none", "-o", "run", "--", *self.torchrun, HERE / "worker.py"],
                   ["rank-00000.h5", "rank-00001.h5"])

    def test_in_front_of_each_worker(self):
        self.check([*self.torchrun, "--no_python", jobs.LOCKSTEP, "run", "--after", "none", "-o", "run", "--",
                    jobs.PYTHON, HERE / "worker.py"], ["rank-00000.h5", "rank-00001.h5"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
