"""`lockstep run` of a program without MPI: what passes through, exit codes, signals. alone_test.py BUILD_DIR"""
import glob
import os
import signal
import subprocess
import unittest

from check import LOCKSTEP, MPIRUN, TESTS, Case, committed, have, jobs, meta, rank_tables, run


class Alone(Case):
    """No MPI at all."""

    def lockstep(self, *words, **more):
        return run([LOCKSTEP, "run", "--after", "none"] + list(words), self.dir, **more)

    def test_output_and_input_pass_through(self):
        done = self.lockstep("--", "cat", input="hello\n")
        self.assertEqual((done.returncode, done.stdout), (0, "hello\n"))
        self.assertIn("1 rank file", done.stderr)

    def test_program_without_dashes_keeps_its_options(self):
        done = self.lockstep("echo", "-o", "x", "--quiet", "--", "y")
        self.assertEqual(done.stdout, "-o x --quiet -- y\n")

    def test_exit_codes(self):
        self.assertEqual(self.lockstep("--", "true").returncode, 0)
        self.assertEqual(self.lockstep("--", "bash", "-c", "exit 42").returncode, 42)
        missing = self.lockstep("--", "./absent")
        self.assertEqual(missing.returncode, 127)
        self.assertIn("./absent: No such file or directory", missing.stderr)
        self.assertEqual(self.lockstep("--", "/etc/passwd").returncode, 126)
        self.assertEqual(self.lockstep("--", "bash", "-c", "kill -ABRT $$").returncode, -signal.SIGABRT)
        self.assertEqual(self.lockstep().returncode, 2)

    def test_a_command_that_cannot_start_leaves_nothing(self):
        self.lockstep("-o", "out", "--", "./absent")
        self.assertFalse(os.path.exists(self.dir + "/out"))

    def test_children_of_a_script_write_into_the_slot(self):
        script = "%se2e_marker a 100; %se2e_marker b 50; true" % (TESTS, TESTS)
        self.assertEqual(self.lockstep("--", "bash", "-c", script).returncode, 0)
        marks = 0
        for path in glob.glob(self.latest() + "/ranks/*.h5"):
            with rank_tables.open_file(path) as f:
                marks += len(f["ranges/begin_ns"])
        self.assertEqual(marks, 150)

    def test_background_child_is_not_waited_for(self):
        done = self.lockstep("--", "bash", "-c", "sleep 1000 > /dev/null 2>&1 & echo $!; exit 5")
        self.assertEqual(done.returncode, 5)
        os.kill(int(done.stdout), signal.SIGKILL)  # It still runs.

    def test_output_closes_with_the_application(self):
        # The reader sees the end when the application ends, not when its file is written.
        process = subprocess.Popen([LOCKSTEP, "run", "--quiet", "--after", "none", "--", "echo", "x"], cwd=self.dir,
                                   stdout=subprocess.PIPE)
        self.assertEqual(process.stdout.read(), b"x\n")
        self.assertEqual(process.wait(), 0)

    def test_signals_reach_the_application_once(self):
        # No $(...) in it: bash 5.2 fails to parse one while it runs a trap.
        script = "trap 'echo got; exit 7' USR1; echo ready; while sleep 0.05; do :; done"
        process = subprocess.Popen([LOCKSTEP, "run", "--quiet", "--after", "none", "--", "bash", "-c", script],
                                   cwd=self.dir, stdout=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.stdout.read(), "got\n")
        self.assertEqual(process.wait(), 7)

    def test_term_ends_both_the_same_way(self):
        process = subprocess.Popen([LOCKSTEP, "run", "--quiet", "--after", "none", "--", TESTS + "e2e_marker", "n",
                                    "100000000", "1000"], cwd=self.dir)
        self.assertTrue(jobs.wait_until(lambda: committed(self.dir + "/n") >= 1000))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=120), -signal.SIGTERM)
        run_dir = self.latest()
        self.assertEqual(self.finish(run_dir), 1)
        with rank_tables.open_file(run_dir + "/ranks/rank-00000.h5") as f:
            self.assertGreaterEqual(len(f["ranges/begin_ns"]), committed(self.dir + "/n"))
            self.assertEqual(meta(f)["exit_signal"], "15")

    def test_latest_is_a_run_with_records(self):
        latest = self.dir + "/lockstep.out/latest"
        for options, there in (([], False), (["--ranks", "1"], True)):  # Nothing is expected of a rank that is left out.
            self.assertEqual(run([LOCKSTEP, "run", "--after", "none", *options, "--", "true"], self.dir).returncode, 0)
            self.assertEqual(os.path.lexists(latest), there, options)

    def test_interrupted(self):
        for how, said in (("kill -INT $$", "interrupted"), ("exit 130", "interrupted"), ("kill -TERM $$", "failed"), ("exit 1", "failed")):
            done = run([LOCKSTEP, "run", "--", "sh", "-c", how], self.dir)
            self.assertIn(f"lockstep: the application {'was ' * (said == 'interrupted')}{said}; what was recorded", done.stderr)

    def test_mpi_without_launcher(self):
        job = [str(jobs.BUILD / "ddp_mpi"), "--quiet", "--steps", "2", "--step-ms", "1"]
        if not have("mpirun") or not os.path.exists(job[0]):
            self.skipTest("no MPI job")
        for launcher, asked in (([], True), (MPIRUN + ["-np", "1"], False)):
            done = run([*launcher, LOCKSTEP, "run", "--after", "none", "--", *job], self.dir)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("one MPI process ran, and no launcher" in done.stderr, asked, done.stderr)

    def test_print_env(self):
        done = run([LOCKSTEP, "run", "--print-env"], self.dir)
        self.assertEqual(done.returncode, 0)
        self.assertIn("export OMPI_MCA_orte_fork_agent=", done.stdout)
        self.assertEqual(run(["bash", "-n"], self.dir, input=done.stdout).returncode, 0)
        if not have("mpirun"):
            return
        script = 'eval "$1"; shift; exec "$@"'
        job = run(["bash", "-c", script, "x", done.stdout.replace("--after analyze", "--after none")] + MPIRUN +
                  ["-np", "2", "true"], self.dir)
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(len(glob.glob(self.latest() + "/ranks/*.h5")), 2)


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=["alone_test.py", "-v"], exit=False).result)
