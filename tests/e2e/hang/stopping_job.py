"""A job of hang_stops under mpirun and `lockstep run`, of which one thing goes wrong. Import after `jobs`."""
import contextlib
import os
import signal
import subprocess
import threading
import time

import jobs

PROGRAM = jobs.BUILD / "tests/hang_stops"
RANKS = 4


class Job:
    """A job that records into `out`, until it hangs. `words`: more options of `lockstep run`."""

    def __init__(self, fault, out, *words, ranks=RANKS):
        self.pids, self.lines, self.run = {}, [], out
        self.process = subprocess.Popen(
            [*jobs.MPIRUN, "-n", str(ranks), jobs.LOCKSTEP, "run", "--quiet", "--after", "none", *words,
             "-o", str(out), "--", str(PROGRAM), fault],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=jobs.ENVIRONMENT, cwd=out.parent)
        self.readers = [threading.Thread(target=self.read_output), threading.Thread(target=self.read_messages)]
        for reader in self.readers:
            reader.start()

    def read_output(self):
        """Lines "here RANK PID PARENT"."""
        for line in self.process.stdout:
            words = line.split()
            if len(words) == 4 and words[0] == "here":
                self.pids[int(words[1])] = (int(words[2]), int(words[3]))

    def read_messages(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def text(self):
        """What it has said so far on standard error."""
        return "\n".join(self.lines)

    def wait_for(self, what, seconds):
        until = time.monotonic() + seconds
        while what not in self.text() and time.monotonic() < until:
            time.sleep(0.1)
        return what in self.text()

    def wait_until(self, ranks):
        """All of these ranks have come to the step in which one of them goes wrong."""
        until = time.monotonic() + 120
        while not set(ranks) <= set(self.pids):
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the job ended or did not begin: {self.pids}")
            time.sleep(0.05)

    def end(self, how=signal.SIGTERM):
        """As `timeout` does."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for reader in self.readers:
            reader.join(30)
        self.process.stdout.close()
        self.process.stderr.close()

    def kill_all(self):
        """Launcher, agents and programs at once: nobody can write anything any more."""
        self.process.send_signal(signal.SIGSTOP)
        for pids in self.pids.values():
            for pid in pids[::-1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.end(signal.SIGKILL)
