#!/usr/bin/env python3
"""The hosts themselves: each is a machine of its own, its network obeys, and nothing is left of them.

  hosts_test.py
"""
import contextlib
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts as of_hosts
from hosts import Hosts

PYTHON = "/usr/bin/python3"
MONOTONIC = "import time; print(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))"
SERVE = """
import socket
server = socket.create_server(("", 7000))
print("ready", flush=True)
while True:
    to, _ = server.accept()
    got = 0
    while data := to.recv(1 << 16):
        got += len(data)
    to.close()
    print(got, flush=True)
"""
# Exit code 0: all was sent and taken.
SEND = """
import socket, sys
try:
    to = socket.create_connection((sys.argv[1], 7000), timeout=1.5)
    to.sendall(bytes(int(sys.argv[2])))
    to.shutdown(socket.SHUT_WR)
    to.settimeout(30)
    to.recv(1)
except OSError as error:
    sys.exit(str(error))
"""


def wait_until(true, seconds=30):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class HostsTest(unittest.TestCase):
    @contextlib.contextmanager
    def serving(self, hosts, host):
        with hosts.start(host, [PYTHON, "-c", SERVE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            try:
                self.assertEqual(server.stdout.readline(), "ready\n")
                yield server
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(server.pid, signal.SIGKILL)

    def sends(self, hosts, source, to, size=1):
        return hosts.run(source, [PYTHON, "-c", SEND, to, str(size)]).returncode == 0

    def test_each_is_a_machine(self):
        with Hosts(3, shift_s=500) as hosts:
            boot = set()
            for host in ("head", *hosts.nodes):
                self.assertEqual(hosts.run(host, ["hostname"]).stdout, host + "\n")
                boot.add(hosts.run(host, ["cat", "/proc/sys/kernel/random/boot_id"]).stdout)
                before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
                shows = int(hosts.run(host, [PYTHON, "-c", MONOTONIC]).stdout) - hosts.shift_s[host] * 10**9
                self.assertTrue(before <= shows <= time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW), (host, before, shows))
                self.assertEqual(hosts.run(host, ["touch", "/tmp/x", "/dev/shm/x", "/run/x", of_hosts.OWN + "/x", host]).returncode, 0)
                os.stat(hosts.path(host, of_hosts.OWN + "/x"))
            self.assertEqual(len(boot), 4)
            self.assertEqual(sorted(hosts.run("node2", ["ls"]).stdout.split()), ["head", "node1", "node2", "node3"], "the shared directory")
            self.assertFalse(os.path.exists(of_hosts.SHARED) or os.path.exists("/dev/shm/x"), "nothing of it on this machine")
            # Processes of one are not those of another; head sees all.
            with hosts.start("node1", ["sleep", "1234.5"]) as sleep:
                find = ["sh", "-c", "grep -l 1234[.]5 /proc/[0-9]*/cmdline"]
                wait_until(lambda: hosts.run("node1", find).stdout)
                self.assertFalse(hosts.run("node2", find).stdout)
                self.assertTrue(hosts.run("head", find).stdout)
                os.killpg(sleep.pid, signal.SIGKILL)

    def test_network(self):
        with Hosts(3) as hosts, self.serving(hosts, "node2") as server:
            self.assertTrue(self.sends(hosts, "node1", "node2"))
            self.assertTrue(self.sends(hosts, "head", "node2"))
            hosts.link("node2", up=False)
            self.assertFalse(self.sends(hosts, "node1", "node2"))
            hosts.link("node2", up=True)
            self.assertTrue(self.sends(hosts, "node1", "node2"))
            # No machine is too slow to be limited: at 8 Mbit/s 2 MB take 2 s at least, less what the bucket holds.
            begin = time.monotonic()
            hosts.limit("node2", "8mbit")
            self.assertTrue(self.sends(hosts, "node1", "node2", 2_000_000))
            self.assertGreater(time.monotonic() - begin, 1.8)
            before = hosts.sent_bytes("node1")
            hosts.limit("node2", None)
            self.assertTrue(self.sends(hosts, "node1", "node2", 2_000_000))
            self.assertGreater(hosts.sent_bytes("node1") - before, 2_000_000)
            hosts.kill("node2")
            self.assertTrue(wait_until(lambda: server.poll() is not None))
            self.assertFalse(self.sends(hosts, "node1", "node2"))
            self.assertEqual(hosts.run("node1", ["hostname"]).stdout, "node1\n", "the others live")

    def test_two_at_once(self):
        with Hosts(1) as one, Hosts(1) as other, self.serving(one, "node1"):
            self.assertTrue(self.sends(one, "head", "node1"))
            self.assertFalse(self.sends(other, "head", "node1"))

    def test_mpirun(self):
        with Hosts(2) as hosts:
            done = hosts.mpirun(2, ["hostname"])
            self.assertEqual((done.returncode, sorted(done.stdout.split())), (0, ["node1", "node1", "node2", "node2"]), done.stderr)

    def test_a_command_is_ended_after_its_time(self):
        with Hosts(1) as hosts:
            with self.assertRaises(subprocess.TimeoutExpired):
                hosts.run("node1", ["sh", "-c", "sleep 4321.5; true"], timeout=1)
            self.assertTrue(wait_until(lambda: not hosts.run("head", ["sh", "-c", "grep -l 4321[.]5 /proc/[0-9]*/cmdline"]).stdout))

    def test_nothing_is_left(self):
        """Of hosts whose owner failed, or was killed while a job ran on them."""
        own = "import sys, os, signal; sys.path.insert(0, sys.argv[1]); from hosts import Hosts\n"
        for end in ("raise SystemError", "os.kill(os.getpid(), signal.SIGKILL)"):
            mark = f"{os.getpid()}{len(end)}.75"
            code = own + ("with Hosts(2) as hosts:\n job = hosts.start('node2', ['sleep', sys.argv[2]])\n"
                          " print(hosts._rack.pid, hosts._head, flush=True)\n sys.stdin.readline()\n " + end)
            with subprocess.Popen([PYTHON, "-c", code, of_hosts.HERE, mark], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True) as owner:
                pids = owner.stdout.readline().split()
                self.assertEqual(len(pids), 2)
                runs = ["sh", "-c", f"grep -l {mark.replace('.', '[.]')} /proc/[0-9]*/cmdline"]
                said = lambda: [p for p in subprocess.run(runs, capture_output=True, text=True).stdout.split() if p != f"/proc/{owner.pid}/cmdline"]
                self.assertTrue(wait_until(said))
                owner.stdin.write("\n")
                owner.stdin.flush()
                owner.wait()
            self.assertTrue(wait_until(lambda: not said() and not any(os.path.exists("/proc/" + pid) for pid in pids)), (end, said(), pids))


if __name__ == "__main__":
    if reason := of_hosts.why_not():
        print("skipped: " + reason)
        sys.exit(77)
    unittest.main()
