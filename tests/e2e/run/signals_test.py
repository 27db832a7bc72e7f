"""Signals: the program gets what it gets without Lockstep, and its end stands whatever becomes of the agent.
signals_test.py BUILD_DIR"""
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import unittest

from check import LOCKSTEP, TESTS, Case, jobs

COUNTS = [jobs.PYTHON, str(pathlib.Path(__file__).with_name("counts_signals.py"))]
RUN = [LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "run", "--"]
SENT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
END = signal.SIGRTMIN + 3
ONCE = {"%s=1" % each.name for each in SENT}


def descendants(pid):
    return [pid] + [each for child in jobs.children(pid) for each in descendants(child)]


class Signals(Case):
    def start(self, words, **more):
        process = subprocess.Popen(words, cwd=self.dir, env=jobs.ENVIRONMENT, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True, **more)
        self.addCleanup(lambda: [jobs.kill(pid) for pid in (descendants(process.pid) if process.poll() is None else [])])
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def counts(self, words, send, launched=lambda process: process.pid):
        """What the program counted, once it has got what was sent to the launched process after `send`."""
        process = self.start(words)
        send(process)
        os.kill(launched(process), END)
        said, _ = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0)
        return set(said.split())

    def both(self, send, **more):
        bare = self.counts(COUNTS, send, **more)
        self.assertEqual(self.counts(RUN + COUNTS, send, **more), bare)
        return bare

    def test_to_the_group(self):
        self.assertEqual(self.both(lambda process: [os.killpg(process.pid, each) for each in SENT]), ONCE)

    def test_to_the_launched_process(self):
        self.assertEqual(self.both(lambda process: [os.kill(process.pid, each) for each in SENT]), ONCE)

    def test_to_every_process(self):
        """As schedulers do, whatever their order."""
        for order in (sorted, lambda pids: sorted(pids, reverse=True)):
            self.assertEqual(self.both(lambda process: [os.kill(pid, each) for each in SENT  # noqa: B023
                                                        for pid in order(descendants(process.pid))]), ONCE)  # noqa: B023

    def test_to_the_agent(self):
        def send(process):
            for each in SENT:
                os.kill(jobs.agent_of(process), each)
            for _ in SENT:
                self.assertEqual(process.stdout.readline(), "got\n")
        self.assertEqual(self.counts(RUN + COUNTS + ["tell"], send), ONCE)

    def test_timeout(self):
        child = lambda process: jobs.children(process.pid)[0]  # noqa: E731

        # Without --foreground it signals its child and then the group, which the bare program may see as two.
        for options, expected in ((["--foreground"], ["SIGTERM=1"]), ([], ["SIGCONT=1", "SIGTERM=1"])):
            def send(process):
                process.send_signal(signal.SIGTERM)
                for _ in expected:  # noqa: B023
                    self.assertEqual(process.stdout.readline(), "got\n")
            words = ["timeout", "--preserve-status", *options, "1000"]
            self.assertEqual(self.counts(words + RUN + COUNTS + ["tell"], send, launched=child), set(expected), options)
            if options:
                self.assertEqual(self.counts(words + COUNTS + ["tell"], send, launched=child), set(expected))

    def test_program_in_a_session_of_its_own(self):
        for send in (os.killpg, os.kill):
            counted = self.counts(RUN + COUNTS + ["apart"], lambda process: [send(process.pid, each) for each in SENT])  # noqa: B023
            self.assertEqual(counted, ONCE)

    def test_agent_killed(self):
        for words, code in (([], 0), (["code", "3"], 3), (["signal", "11"], -11)):
            process = self.start(RUN + COUNTS + words)
            agent = jobs.agent_of(process)
            os.kill(agent, signal.SIGKILL)
            # The waiter has adopted the program.
            self.assertTrue(jobs.wait_until(lambda: len(jobs.children(process.pid)) == 1 and  # noqa: B023
                                            jobs.children(process.pid) != [agent]))  # noqa: B023
            self.assertIn("lockstep: the agent (process %d) was ended by signal 9" % agent, process.stderr.readline())
            os.kill(process.pid, signal.SIGUSR1)
            os.kill(process.pid, END)
            said, _ = process.communicate(timeout=120)
            self.assertEqual((process.returncode, said), (code, "SIGUSR1=1\n"))
            recovered = jobs.run([LOCKSTEP, "recover", "run"], self.dir)
            self.assertIn(recovered.returncode, (0, 3), recovered.stderr)
            shutil.rmtree(self.dir + "/run")

    def test_at_the_end_of_the_run(self):
        """While the verdict is made, signals are for Lockstep; here it waits for a reader of its file."""
        os.mkfifo(self.dir + "/verdict")
        for number, code in ((signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, -signal.SIGINT), (signal.SIGKILL, 0)):
            words = [LOCKSTEP, "run", "--quiet", "--after-to", "verdict", "-o", "run-%d" % number, "--",
                     TESTS + "e2e_marker", "count", "100", "0"]
            process = subprocess.Popen(words, cwd=self.dir, env=jobs.ENVIRONMENT, stderr=subprocess.PIPE)
            file = pathlib.Path(self.dir, "run-%d/ranks/rank-00000.h5" % number)
            self.assertTrue(jobs.wait_until(file.exists))
            os.kill(jobs.agent_of(process) if number == signal.SIGKILL else process.pid, number)
            _, said = process.communicate(timeout=120)
            self.assertEqual(process.returncode, code, said)

    def test_waiter_killed(self):
        """Then the agent goes on: everything is in the rank file."""
        process = self.start(RUN + COUNTS)
        agent, program = jobs.agent_of(process), jobs.program_of(process)
        process.kill()
        process.wait()
        os.kill(program, END)
        self.assertTrue(jobs.wait_until(lambda: jobs.gone(agent)))
        self.assertTrue(os.path.exists(self.dir + "/run/ranks/rank-00000.h5"))

    def test_terminal(self):
        """Ctrl-C, Ctrl-Z and fg, as seen by a shell."""
        for words in (COUNTS, RUN + COUNTS):
            script = '"$@"; echo stopped $?; fg > /dev/null; echo ended $?'
            pid, terminal = pty.fork()
            if pid == 0:
                os.chdir(self.dir)
                os.execve("/bin/bash", ["bash", "--norc", "-m", "-c", script, "bash", *words], jobs.ENVIRONMENT)
            seen = b""

            def until(text):
                nonlocal seen
                while text not in seen:  # noqa: B023
                    seen += os.read(terminal, 4096)  # noqa: B023
            until(b"ready")
            (launched,) = jobs.children(pid)
            os.write(terminal, b"\x03\x1a")
            until(b"stopped 148")
            until(b"\n")
            os.kill(launched, END)
            until(b"ended 0")
            os.close(terminal)
            os.waitpid(pid, 0)
            self.assertIn(b"SIGCONT=1 SIGINT=1\r\n", seen, words)


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=["signals_test.py", "-v"], exit=False).result)
