"""What one host of four lacks costs its own ranks' records at most: the job is as without Lockstep, and what is known is kept and said.

usage: faults_test.py BUILD_DIR Faults

The hosts share no directory, so that nothing of the one that lacks something gets to rank 0 but over the network.
"""
import os
import pathlib
import re
import sys
import threading
import unittest

from four_hosts import jobs, of_hosts
from four_hosts import FourHosts as Case

WORDS = [str(jobs.BUILD / "tests/chatty"), "99", "0", "5"]
LATEST = of_hosts.OWN + "/lockstep.out/latest"


class Faults(Case):
    def on_node3(self, script):
        made = self.hosts.run("node3", ["sh", "-ec", script])
        self.assertEqual(made.returncode, 0, made.stderr)

    def recorded(self, missing):
        """Runs the job, compares it with the bare one, and returns what was said and what the analysis says."""
        bare = self.job(WORDS, cwd=of_hosts.OWN)
        self.assertEqual(bare.returncode, 0, bare.stderr)
        done = self.job(WORDS, run="", cwd=of_hosts.OWN, options=("--after", "none", "--after-wait", "10"))
        self.assertEqual((done.returncode, done.stdout), (0, bare.stdout), done.stderr)
        files = os.listdir(self.hosts.path("node1", LATEST) + "/ranks")
        self.assertEqual([name for name in files if name.endswith(".part")], [])
        analysis = self.analyze("lockstep.out/latest", "node1", of_hosts.OWN, code=3 if missing else 0)
        self.assertEqual(analysis["run"]["ranks_missing"], missing, done.stderr)
        self.assertEqual([row["rank"] for row in analysis["ranks"]], [rank for rank in range(8) if rank not in missing])
        return done.stderr, analysis

    def test_no_shared_memory(self):
        self.on_node3("mount -t tmpfs -o size=4k none /dev/shm; head -c 4096 /dev/zero >/dev/shm/full")
        said, _ = self.recorded([])
        self.assertRegex(said, r"(?m)^lockstep: the rings are on a disk \(/dev/shm has \d+ B for it, [\d.]+ [kM]B are needed\), so recorded calls may take milliseconds longer$")
        self.assertRegex(said, "rank files of 3 hosts, .* arrived")

    def test_no_room_on_its_disk(self):
        self.on_node3(f"mount -t tmpfs -o size=8k none {of_hosts.OWN}; mkdir {of_hosts.OWN}/lockstep.out; cat /dev/zero >{of_hosts.OWN}/full 2>/dev/null || true")
        said, _ = self.recorded([4, 5])
        self.assertRegex(said, r"(?m)^lockstep: rank 4 runs without Lockstep: .*No space left on device")
        self.assertRegex(said, r"(?m)^lockstep: no files from ranks 4-5 in ")
        self.assertRegex(said, "rank files of 2 hosts, .* arrived")

    def test_a_shared_directory_that_it_cannot_write(self):
        """Its ranks' files come to the others by the network."""
        self.on_node3(f"mount --bind {of_hosts.SHARED} {of_hosts.SHARED} && mount -o remount,bind,ro {of_hosts.SHARED}")
        done = self.job(WORDS, run="")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"(?m)^lockstep: lockstep\.out cannot be written \(Read-only file system\): this run's files go to /tmp/")
        self.assertRegex(done.stderr, "rank files of 1 host, .* arrived in lockstep.out/")
        self.check_complete(self.analyze("lockstep.out/latest"))

    def test_names_of_hosts(self):
        """What they hold is text, for a terminal and for a shell."""
        names = ["a b;$(touch /mnt/own/touched)", "h\u00f6st", "x" * 64, "\x1b[31mred"]
        for node, name in zip(self.hosts.nodes, names):
            made = self.hosts.run(node, ["/usr/bin/python3", "-c", "import socket, sys; socket.sethostname(sys.argv[1])", name])
            self.assertEqual(made.returncode, 0, made.stderr)
        said, analysis = self.recorded([])
        self.assertRegex(said, "rank files of 3 hosts, .* arrived")
        self.assertEqual([row["node"] for row in analysis["ranks"]], [name for name in names for _ in range(2)])
        left = self.job(WORDS, run="", cwd=of_hosts.OWN, options=("--no-send",))
        self.assertNotIn("\x1b", left.stderr)
        command, = re.findall(r"(?m)^lockstep: no files from ranks 2-7 in .*: (lockstep gather .*?)   then: ", left.stderr)
        words = self.hosts.run("node1", ["bash", "-c", f"printf '%s\\n' {command}"]).stdout.split("\n")
        # Where a name is none that a shell may be given, the address is that.
        self.assertEqual([word.rpartition(":")[0] for word in words[2:6]], ["", names[1], names[2], "10.77.0.4"])
        self.assertEqual([node for node in self.hosts.nodes if os.path.exists(self.hosts.path(node, of_hosts.OWN + "/touched"))], [])

    def test_hosts_that_call_themselves_the_same(self):
        """They are told apart by their boots, and the command that brings their files names their addresses."""
        for node in self.hosts.nodes:
            self.assertEqual(self.hosts.run(node, ["hostname", "localhost"]).returncode, 0)
        said, analysis = self.recorded([])
        self.assertRegex(said, "rank files of 3 hosts, .* arrived")
        self.assertEqual([row["node"] for row in analysis["ranks"]], [f"localhost#{rank // 2 + 1}" for rank in range(8)])
        left = self.job(WORDS, run="left", cwd=of_hosts.OWN, options=("--no-send", "--after", "none"))
        command, = re.findall(r"(?m)^lockstep: no files from ranks 2-7 in .*: lockstep gather (.*?) -o left   then: ", left.stderr)
        self.assertEqual(command.split(), [f"localhost:{of_hosts.OWN}/left", *(f"10.77.0.{n}:{of_hosts.OWN}/left" for n in (2, 3, 4))])

    def test_two_jobs_at_once(self):
        """Of the same hosts and the same user, in one directory."""
        done = {}

        def start(run):
            done[run] = self.job(WORDS, run=run, cwd=of_hosts.OWN)
        threads = [threading.Thread(target=start, args=(run,)) for run in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(done), ["one", "two"])
        for run, job in done.items():
            self.assertEqual(job.returncode, 0, job.stderr)
            self.assertRegex(job.stderr, f"rank files of 3 hosts, .* arrived in {run}\n")
            analysis = self.analyze(run, "node1", of_hosts.OWN)
            self.check_complete(analysis)
            self.check_clocks(self.hosts.path("node1", f"{of_hosts.OWN}/{run}/timeline.h5"), analysis)

    def test_no_library(self):
        """Of Lockstep only the program is there."""
        bare = of_hosts.SHARED + "/bare"
        self.on_node3(f"mkdir -p {bare}/tests; for name in lockstep tests/chatty; do touch {bare}/$name; mount --bind {jobs.BUILD}/$name {bare}/$name; done; "
                      f"mount --rbind {bare} {jobs.BUILD}")
        said, _ = self.recorded([4, 5])
        self.assertRegex(said, r"(?m)^lockstep: rank 4 runs without Lockstep: ")
        self.assertRegex(said, r"(?m)^lockstep: no files from ranks 4-5 in ")

    def test_another_version(self):
        """Its files are as good as others', but stay where they are."""
        version = re.search(r"\d+\.\d+\.\d+", self.hosts.run("head", [jobs.LOCKSTEP, "--version"]).stdout)[0]
        # In the program it is text, or a number in an instruction, which holds four bytes of it.
        first, _, last = version.rpartition(".")
        other = first[:-1] + str((int(first[-1]) + 5) % 10) + "." + last
        there = pathlib.Path(self.hosts.path("head", of_hosts.SHARED + "/other"))
        there.write_bytes(pathlib.Path(jobs.LOCKSTEP).read_bytes().replace(version[:4].encode(), other[:4].encode()))
        there.chmod(0o755)
        self.on_node3(f"mount --bind {of_hosts.SHARED}/other {jobs.LOCKSTEP}")
        said, _ = self.recorded([4, 5])
        why = f"its Lockstep is version {other}, and rank 0's is {version}"
        self.assertRegex(said, rf"(?m)^lockstep: not taken: rank 4 of node3: {re.escape(why)} \(and files of 1 other\)$")
        self.assertRegex(said, rf"(?m)^lockstep: the files of rank 4 stay in \S+ on node3: {re.escape(why)}")
        self.assertRegex(said, r"(?m)^lockstep: no files from ranks 4-5 in .*: lockstep gather .* node3:")


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(globals()[sys.argv[2]])
    if len(sys.argv) > 3:
        suite = unittest.TestSuite(globals()[sys.argv[2]](name) for name in sys.argv[3:])
    jobs.leave(unittest.TextTestRunner(verbosity=2).run(suite))
