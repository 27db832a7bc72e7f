"""Ports that a recorded job opens: where they listen, what strangers on them can do (nothing), and that the job goes on.

usage: ports_test.py BUILD_DIR [unittest arguments]
"""

import os
import pathlib
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs

CROWD = int(os.environ.get("LOCKSTEP_TEST_CROWD", "1000"))

def listening(pid):
    """[(address, port)] on which a process listens, from /proc; of its own network namespace."""
    inodes = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry.path))
        except OSError:
            continue
        if found:
            inodes.add(found.group(1))
    result = []
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                address, port = words[1].split(":")
                raw = b"".join(struct.pack("=I", int(address[i:i + 8], 16)) for i in range(0, len(address), 8))
                result.append((socket.inet_ntop(socket.AF_INET if name == "tcp" else socket.AF_INET6, raw), int(port, 16)))
    return result


def agents(run):
    """{rank: pid} of the agents that record into `run`."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if (entry / "comm").read_text() != "lockstep\n":
                continue  # Such as the process that waits for an agent, which has the same words.
            words = (entry / "cmdline").read_bytes().split(b"\0")
            environment = dict(item.split(b"=", 1) for item in (entry / "environ").read_bytes().split(b"\0") if b"=" in item)
        except (OSError, ValueError):
            continue
        if len(words) > 3 and words[0].endswith(b"lockstep") and words[1] == b"run" and os.fsencode(str(run)) in words:
            found[int(environment.get(b"OMPI_COMM_WORLD_RANK", environment.get(b"RANK", b"0")))] = int(entry.name)
    return found


class Ports(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.here = pathlib.Path(held.name)
        self.run_dir = self.here / "run"
        self.processes = []
        self.addCleanup(self.end)

    def end(self):
        (self.here / "go").touch()
        for process in self.processes:
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdout, process.stderr):
                stream.close()

    def start(self, before=(), options=(), more=(), **environment):
        self.processes.append(subprocess.Popen(
            [*map(str, before), jobs.LOCKSTEP, "run", "-o", str(self.run_dir), "--after", "none", *options, "--", jobs.PYTHON, str(pathlib.Path(__file__).resolve().parent / "app.py"),
             str(self.here), *more], env=dict(jobs.ENVIRONMENT, **environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE))

    def slots(self, count, local, **more):
        """As torchrun starts them, without it."""
        for rank in range(count):
            self.start(RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank % local), LOCAL_WORLD_SIZE=str(local),
                       MASTER_ADDR="127.0.0.1", MASTER_PORT=str(os.getpid()), **more)

    def up(self, count):
        self.assertTrue(jobs.wait_until(lambda: len(list(self.here.glob("up-*"))) >= count))
        found = agents(self.run_dir)
        self.assertEqual(sorted(found), list(range(count)))
        return found

    def finish(self, code=0):
        (self.here / "go").touch()
        for process in self.processes:
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, code, err)
            self.assertEqual(set(out.splitlines()), {b"result 332833500"}, err)

    def test_one_rank_opens_nothing(self):
        self.start()
        for pid in self.up(1).values():
            self.assertEqual(listening(pid), [])
        self.assertFalse((self.run_dir / "ranks/.clock-key").exists())
        self.finish()

    def test_clock_off_opens_nothing(self):
        for rank in range(2):
            self.start(options=["--clock", "off"], RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
        for pid in self.up(2).values():
            self.assertEqual(listening(pid), [])
        self.finish()

    def test_one_host_is_the_loopback(self):
        if not jobs.have("mpirun"):
            self.skipTest("no mpirun")
        self.start(before=[*jobs.MPIRUN, "-np", "3"])
        found = self.up(3)
        self.assertEqual([address for address, _ in listening(found[0])], ["127.0.0.1"])
        self.assertEqual(listening(found[1]) + listening(found[2]), [])
        self.finish()

    def test_key_is_nobodys_elses(self):
        self.slots(2, 1)
        found = self.up(2)
        key_file = self.run_dir / "ranks/.clock-key"
        self.assertEqual(key_file.stat().st_mode & 0o7777, 0o600)
        key = key_file.read_bytes()
        self.assertEqual(len(key), 32)
        everything = b"".join(path.read_bytes() for path in self.run_dir.rglob("*") if path.is_file() and path != key_file)
        for pid in found.values():
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for process in (pid, *children):
                everything += pathlib.Path(f"/proc/{process}/environ").read_bytes() + pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
        self.finish()
        everything += b"".join(path.read_bytes() for path in self.run_dir.rglob("*") if path.is_file())
        for form in (key, key.hex().encode(), key[:8], key[:8].hex().encode(), key[:8][::-1].hex().encode()):
            self.assertNotIn(form, everything)
        self.assertEqual(list((self.run_dir / "ranks").glob(".clock*")), [])

    def test_strangers(self):
        """Other hosts may be part of the job, so it listens everywhere; garbage, silence and crowds change nothing."""
        self.slots(2, 1, LOCKSTEP_TEST_CLOCK="1:offset_s=1000")
        found = self.up(2)
        self.assertEqual(listening(found[1]), [])
        ((address, port),) = listening(found[0])
        self.assertIn(address, ("::", "0.0.0.0"))
        words = random.Random(5)
        held = []
        for i in range(CROWD):
            try:
                stranger = socket.create_connection(("127.0.0.1", port), timeout=5)
                kind = i % 6
                if kind == 1:
                    stranger.sendall(words.randbytes(200))
                elif kind == 2:
                    stranger.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                elif kind == 3:
                    stranger.sendall(b"LSCLK02\0" + words.randbytes(56))  # A hello, and a guessed proof.
                elif kind == 4:
                    stranger.sendall(b"L")
                elif kind == 5:
                    stranger.shutdown(socket.SHUT_WR)
                held.append(stranger)
            except OSError:
                pass
            if len(held) > 150:
                held.pop(0).close()
        self.assertLess(len(os.listdir(f"/proc/{found[0]}/fd")), 64 + 64)
        before = self.bursts()
        jobs.wait_until(lambda: self.bursts() > before)  # One more, with strangers holding on.
        self.assertGreater(self.bursts(), before)
        for stranger in held:
            stranger.close()
        self.finish()
        rank_file = jobs.RankFile(self.run_dir / "ranks/rank-00001.h5")
        self.assertGreaterEqual(len(rank_file.tables["clock_bursts"]["burst"]), 25)

    def test_failing_job_ends_as_without(self):
        for rank in range(2):
            self.start(more=["fail"], RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(os.getpid()))
        found = self.up(2)
        ((_, port),) = listening(found[0])
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            self.finish(7)

    def test_many_addresses(self):
        """A node with 20 addresses of which the others reach the last: namespaces, joined by one pair of interfaces."""
        if os.geteuid() != 0 or not shutil.which("ip") or subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode != 0:
            self.skipTest("needs root and network namespaces")
        names = [f"lockstep-test-{os.getpid()}-{side}" for side in "ab"]

        def ip(*words, check=True):
            return subprocess.run(["ip", *map(str, words)], check=check, capture_output=True, text=True)

        for name in names:
            self.addCleanup(ip, "netns", "del", name, check=False)
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        self.processes_end_first()
        ip("-n", names[0], "link", "add", "zz0", "type", "veth", "peer", "name", "zz0", "netns", names[1])
        for i in range(20):
            # As a bridge of containers has them; dummies are not in every kernel.
            made = ip("-n", names[0], "link", "add", f"d{i}", "type", "dummy", check=False)
            if made.returncode != 0:
                ip("-n", names[0], "addr", "add", f"10.250.{i}.1/24", "dev", "zz0")
                continue
            ip("-n", names[0], "addr", "add", f"10.250.{i}.1/24", "dev", f"d{i}")
            ip("-n", names[0], "link", "set", f"d{i}", "up")
        for number, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"10.251.0.{number}/24", "dev", "zz0")
            ip("-n", name, "link", "set", "zz0", "up")
        for rank, name in enumerate(names):
            self.start(before=["ip", "netns", "exec", name], options=["--clock", "tcp"], RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="1",
                       MASTER_ADDR="10.251.0.1", MASTER_PORT="29500", LOCKSTEP_TEST_CLOCK="1:offset_s=1000")
        self.up(2)
        announced = (self.run_dir / "ranks/.clock-00000").read_text().split()[-1].split(",")
        self.assertEqual(len(announced), 22, announced)
        jobs.wait_until(lambda: self.bursts() > 0)
        self.finish()
        self.assertGreaterEqual(len(jobs.RankFile(self.run_dir / "ranks/rank-00001.h5").tables["clock_bursts"]["burst"]), 25)

    def bursts(self):
        """How many blocks of bursts rank 1's spool has."""
        return (self.run_dir / "ranks/rank-00001.spool").read_bytes().count(b"LSBK\x01\x00\x06\x00")

    def processes_end_first(self):
        """Before their namespaces: cleanups run in reverse."""
        self.addCleanup(self.end)


if __name__ == "__main__":
    program = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False)
    jobs.leave(program.result)
