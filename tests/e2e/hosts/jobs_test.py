"""Jobs over four hosts of two ranks, with clocks 1,000 s apart.

usage: jobs_test.py BUILD_DIR Class

Clocks       one run directory, and clocks that are where they are said to be
Many         64 ranks (or as many as are given after the class, by hand), each host with directories of its own
NotShared    each host has directories of its own, and nothing is sent: the command that is said brings them together
Addresses    IPv6 alone; twelve addresses, of which one leads to the other host
HostDies     the job ends as without Lockstep, and the analysis says whose ranks are gone
LinkCut      for two seconds: the job's results, and the whole run
SlowNetwork  the host whose network is slow, and no rank
"""
import json
import os
import pathlib
import re
import shlex
import sys
import time
import unittest

from four_hosts import JOB, jobs, of_hosts
from four_hosts import FourHosts as Case

RANKS = int(sys.argv[3]) if len(sys.argv) > 3 else 64


class Clocks(Case):
    def test_one_run_of_all_hosts(self):
        bare = self.job([*JOB, "--steps", "20"])
        done = self.job([*JOB, "--steps", "20"], run="")
        self.assertEqual((done.returncode, bare.returncode), (0, 0), done.stderr)
        self.assertEqual(done.stdout.splitlines()[0], bare.stdout.splitlines()[0])
        runs = os.listdir(self.hosts.path("head", of_hosts.SHARED + "/lockstep.out"))
        self.assertEqual(len([name for name in runs if name.startswith("2")]), 1, runs)
        self.assertIn("8 ranks on 4 nodes", done.stderr)
        for host in self.hosts.nodes:
            self.assertRegex(done.stderr, rf"(?m)^  \d  {host} ")
        self.assertRegex(done.stderr, r"TRUST +clock \+-[\d.]+ us median, \+-[\d.]+ us at most")
        analysis = self.analyze("lockstep.out/latest")
        self.check_complete(analysis)
        self.check_clocks(self.hosts.path("head", of_hosts.SHARED + "/lockstep.out/latest/timeline.h5"), analysis)


class Many(Case):
    """
    What is sent of a host by many agents at once, and a job whose ranks have a small part of a core each. The exchange in
    MPI_Init is given up on most of them; a host none of whose ranks came to its first step does not know where rank 0 is,
    and what is said brings its files.
    """
    def test_all_arrive(self):
        each = RANKS // 4
        words = [*JOB, "--steps", "3"]
        bare = self.job(words, each=each)
        done = self.job(words, run="", cwd=of_hosts.OWN, each=each)
        self.assertEqual((done.returncode, bare.returncode), (0, 0), done.stderr)
        self.assertEqual(done.stdout.splitlines()[0], bare.stdout.splitlines()[0])
        host, place, most_ns = "node1", of_hosts.OWN + "/lockstep.out/latest", 50_000_000  # A thread that answers waits for its turn among 32 on a core.
        if not re.search("rank files of 3 hosts, .* arrived", done.stderr):
            said = sorted(set(re.findall(rf"(node\d:{of_hosts.OWN}/lockstep\.out/\S+)", done.stderr)))
            gathered = self.hosts.run("head", [jobs.LOCKSTEP, "gather", *said, "-o", "all", "--rsh", os.path.join(of_hosts.HERE, "rsh")], env=jobs.ENVIRONMENT)
            self.assertEqual(gathered.returncode, 0, done.stderr + gathered.stderr)
            host, place, most_ns = "head", of_hosts.SHARED + "/all", 10**10  # By collectives alone.
        analysis = json.loads(self.hosts.run(host, [jobs.LOCKSTEP, "analyze", "--json", "-", place], env=jobs.ENVIRONMENT).stdout)
        self.check_complete(analysis, each)
        self.check_clocks(self.hosts.path(host, place + "/timeline.h5"), analysis, each, most_ns)


class NotShared(Case):
    def test_what_is_said_leads_to_the_whole_run(self):
        words = [*JOB, "--steps", "20"]
        bare = self.job(words)
        done = self.job(words, run="", cwd=of_hosts.OWN, options=["--no-send"])
        self.assertEqual((done.returncode, bare.returncode), (0, 0), done.stderr)
        self.assertEqual(done.stdout.splitlines()[0], bare.stdout.splitlines()[0])
        home = self.hosts.path("node1", of_hosts.OWN + "/lockstep.out/latest")
        self.assertEqual(sorted(os.listdir(home + "/ranks"))[-2:], ["rank-00000.h5", "rank-00001.h5"])
        self.assertIn("nothing is there of ranks 2-7", done.stderr)
        # One line for the whole job says how to bring them together; head is a host that reaches all.
        lines = re.findall(r"^lockstep: .*(lockstep gather .*?)   then: lockstep analyze (.*)$", done.stderr, re.M)
        self.assertEqual((len(lines), done.stderr.count("lockstep gather")), (1, 1), done.stderr)
        command, run = lines[0]
        words = shlex.split(command)
        self.assertEqual(words[0], "lockstep")
        self.assertEqual([word.split(":")[0] for word in words if word.startswith("node")], self.hosts.nodes)
        self.check_gathered([*words[1:], "--rsh", os.path.join(of_hosts.HERE, "rsh")], run)

    def check_gathered(self, words, run):
        before = {host: self.state(host) for host in self.hosts.nodes}
        gathered = self.hosts.run("head", [jobs.LOCKSTEP, *words], env=jobs.ENVIRONMENT)
        self.assertEqual((gathered.returncode, gathered.stderr), (0, ""), gathered.stdout)
        self.assertIn("8 of 8 ranks recorded", gathered.stdout)
        self.assertEqual({host: self.state(host) for host in self.hosts.nodes}, before)
        analysis = self.analyze(run)
        self.check_complete(analysis)
        self.check_clocks(self.hosts.path("head", f"{of_hosts.SHARED}/{run}/timeline.h5"), analysis)
        # All is there: nothing is copied a second time.
        again = self.hosts.run("head", [jobs.LOCKSTEP, *words], env=jobs.ENVIRONMENT)
        self.assertEqual((again.returncode, again.stdout.count("  0 files (0 B) copied")), (0, 4), again.stdout + again.stderr)

    def state(self, host):
        top = pathlib.Path(self.hosts.path(host, of_hosts.OWN))
        return {str(path.relative_to(top)): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in top.rglob("*")}

    def test_a_job_that_fails(self):
        """Ranks that were told to end left spools, and one line says where they are."""
        fail = ('[ "$OMPI_COMM_WORLD_RANK" = 5 ] || exec "$@"; "$@" & while [ ! -e fail ]; do sleep 0.1; done; kill -9 $!; exit 7')
        self.once_training(lambda: pathlib.Path(self.hosts.path("node3", of_hosts.OWN + "/fail")).touch())
        done = self.job(["sh", "-c", fail, "sh", *JOB, "--steps", "5000"], run="", cwd=of_hosts.OWN)
        self.assertEqual(done.returncode, 7, done.stderr)
        lines = re.findall(r"^lockstep: the application failed; .*(lockstep gather .*?)   then: lockstep analyze (.*)$", done.stderr, re.M)
        self.assertEqual((len(lines), done.stderr.count("lockstep gather")), (1, 1), done.stderr)
        words = [*shlex.split(lines[0][0])[1:], "--rsh", os.path.join(of_hosts.HERE, "rsh")]
        gathered = self.hosts.run("head", [jobs.LOCKSTEP, *words], env=jobs.ENVIRONMENT)
        self.assertEqual(gathered.returncode, 0, gathered.stdout + gathered.stderr)
        analysis = self.analyze(lines[0][1], code=3)
        self.assertEqual((analysis["run"]["ranks"], analysis["run"]["ranks_missing"]), (8, []))

    def test_a_host_that_dies(self):
        """Where its files are was told before; what is there of the others is had."""
        self.once_training(lambda: self.hosts.kill("node3"))
        done = self.job([*JOB, "--steps", "2000"], run="", cwd=of_hosts.OWN)
        lines = re.findall(r"^lockstep: the application failed; .*(lockstep gather .*?)   then: lockstep analyze (.*)$", done.stderr, re.M)
        self.assertEqual((len(lines), done.stderr.count("lockstep gather")), (1, 1), done.stderr)
        words = [*shlex.split(lines[0][0])[1:], "--rsh", os.path.join(of_hosts.HERE, "rsh")]
        gathered = self.hosts.run("head", [jobs.LOCKSTEP, *words], env=jobs.ENVIRONMENT)
        self.assertEqual(gathered.returncode, 3, gathered.stdout + gathered.stderr)
        self.assertRegex(gathered.stderr, r"^error: nothing could be had from one of the directories: .*\n  node3:/mnt/own/.*\n  try: .*\n$")
        self.assertEqual(self.analyze(lines[0][1], code=3)["run"]["ranks_missing"], [4, 5])


class Addresses(Case):
    """Agents find each other over the network that there is. Two hosts, a program without MPI, clocks over TCP."""
    PROGRAM = ["sh", "-c", "while [ ! -e go ]; do sleep 0.1; done"]

    def on_both(self, script):
        for number, host in enumerate(self.hosts.nodes[:2], 1):
            done = self.hosts.run(host, ["sh", "-c", script], env=dict(jobs.ENVIRONMENT, N=str(number)))
            if done.returncode != 0:
                self.skipTest("these hosts get no such addresses: " + done.stderr)

    def measured(self):
        """How rank 1 reached rank 0, and how far its clock was found to be from the truth."""
        agents = []
        sent = self.hosts.sent_bytes("node2")
        for rank, host in enumerate(self.hosts.nodes[:2]):
            told = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": "node1", "MASTER_PORT": 29500}
            agents.append(self.hold(self.hosts.start(host, [jobs.LOCKSTEP, "run", "-o", "run", "--after", "none", "--clock", "tcp", "--", *self.PROGRAM],
                                                     env=dict(jobs.ENVIRONMENT, **{name: str(value) for name, value in told.items()}))))
        # A burst is 25 messages of 32 bytes in packets of some 100.
        end = time.monotonic() + 60
        while self.hosts.sent_bytes("node2") - sent < 6000 and time.monotonic() < end:
            time.sleep(0.05)
        pathlib.Path(self.hosts.path("head", of_hosts.SHARED + "/go")).touch()
        self.assertEqual([agent.wait(60) for agent in agents], [0, 0])
        file = jobs.RankFile(self.hosts.path("head", of_hosts.SHARED + "/run/ranks/rank-00001.h5"))
        t1, t2, t3, t4 = (file.column("clock_bursts", name).astype(object) for name in ("send_ns", "peer_receive_ns", "peer_send_ns", "receive_ns"))
        self.assertGreaterEqual(len(t1), 25, file.meta["clock_service"])
        true_ns = (self.hosts.shift_s["node1"] - self.hosts.shift_s["node2"]) * 10**9
        for i in range(len(t1)):
            self.assertTrue(t2[i] - t1[i] >= true_ns >= t3[i] - t4[i], i)
        return file.meta["clock_service"]

    def test_ipv6_only(self):
        self.on_both("echo 0 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6 && ip addr flush dev eth0 scope global && ip -6 addr add fd77::$N/64 dev eth0 nodad")
        self.assertIn("[fd77::1]:", self.measured())

    def test_twelve_addresses(self):
        """Most of both hosts lead nowhere or to the asking host itself, and the one that leads there is the last."""
        self.on_both("ip addr flush dev eth0 scope global && for k in 1 2 3 4 5; do ip addr add 172.20.$k.1/24 dev eth0 && ip addr add 172.21.$((N * 10 + k)).1/24 dev eth0 "
                     "|| exit; done && ip -6 addr add fd88:$N::1/64 dev eth0 nodad && ip addr add 10.77.0.$N/24 dev eth0 && ip route add default via 10.77.0.200")
        self.assertIn("tcp to rank 0", self.measured())


class HostDies(Case):
    WORDS = [*JOB, "--steps", "2000"]

    def test_its_ranks_are_told(self):
        ends = {}
        for run in (None, "dead"):
            if run:
                self.hosts.close()
                self.hosts = self.hold(of_hosts.Hosts(4, visible=[jobs.BUILD]))
            self.once_training(lambda: self.hosts.kill("node3"))
            done = ends[run] = self.job(self.WORDS, run)
            self.assertIn("lost communication with a remote daemon", done.stderr)
        self.assertEqual(ends["dead"].returncode, ends[None].returncode)
        self.assertEqual(ends["dead"].stdout, ends[None].stdout)
        analysis = self.analyze("dead", code=3)
        self.assertEqual(analysis["run"]["ranks"], 8)
        # The launcher may end the others within milliseconds; then nobody ended early, and who is not known to have ended
        # may still run.
        early = analysis["run"]["ranks_ended_early"]
        self.assertIn(early, ([], [4, 5]))
        if early:
            self.assertTrue(analysis["run"]["endings"][0].startswith("ranks 4 and 5 (all of node3) exited without a status"), analysis["run"]["endings"])
            self.assertIn("(all of node3)", " ".join(analysis["remarks"]))
        else:
            self.assertTrue(analysis["run"]["endings"][0].startswith("ranks 0-3, 6 and 7 "), analysis["run"]["endings"])
        # What was recorded until then counts.
        self.assertGreater(analysis["run"]["steps"], 3)


class LinkCut(Case):
    WORDS = [*JOB, "--steps", "100"]

    def test_the_run_is_complete(self):
        bare = self.job(self.WORDS)
        self.assertEqual(bare.returncode, 0, bare.stderr)

        def cut():
            self.hosts.link("node3", up=False)
            time.sleep(2)
            self.hosts.link("node3", up=True)
        self.once_training(cut)
        done = self.job(self.WORDS, "cut")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[0], bare.stdout.splitlines()[0])
        analysis = self.analyze("cut")
        self.check_complete(analysis)
        self.check_clocks(self.hosts.path("head", of_hosts.SHARED + "/cut/timeline.h5"), analysis)
        # It was cut in a step, and this step is among those that were recorded; what was sent before the cut may let the
        # first part of it pass in the step before.
        steps = [step["step_ns"] for step in analysis["steps"]]
        self.assertGreater(max(map(sum, zip(steps, steps[1:]))), 2_000_000_000)
        cuts = [finding for finding in analysis["findings"] if finding["id"] == "link.cut"]
        self.assertEqual(len(cuts), 1, analysis["verdict"])
        self.assertIn("node3", cuts[0]["hosts"])
        self.assertRegex(cuts[0]["headline"], r"^Nothing moved between hosts for [\d.]+ m?s in step \d+ ")
        self.assertEqual(analysis["stragglers"], [])


class SlowNetwork(Case):
    """A rank on each host, as ranks that lack cores hide a network: steps mostly sleep, and transfers are long."""
    RATE, BYTES_PER_S = "100mbit", 100e6 / 8

    def test_the_host_is_named(self):
        self.hosts.limit("node3", self.RATE)
        words = [str(jobs.BUILD / "ddp_mpi"), "--quiet", "--steps", "20", "--step-ms", "100", "--width", "512", "--layers", "4",
                 "--overlap", "off", "--bucket-cap-mb", "0.25"]
        done = self.job(words, "slow", each=1)
        self.assertEqual(done.returncode, 0, done.stderr)
        analysis = self.analyze("slow")
        self.assertEqual(analysis["stragglers"], [])
        links = [finding for finding in analysis["findings"] if finding["id"] == "link.slow"]
        self.assertEqual(len(links), 1, analysis["verdict"])
        link = links[0]
        # Beside it only a host that waits for its data as long as it does, and then it is said that it is one of them.
        self.assertIn("node3", link["hosts"])
        self.assertLessEqual(len(link["hosts"]), 2)
        if len(link["hosts"]) > 1:
            self.assertTrue(link["one_of_hosts"])
            self.assertIn("a slow network of " + " or ".join(link["hosts"]) + ", or of a host that sends there (which of them, this run cannot tell", link["headline"])
        least, most = link["network_bytes_per_s"]
        self.assertTrue(least / 1.5 <= self.BYTES_PER_S <= most * 1.5, link["evidence"])


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(globals()[sys.argv[2]])
    jobs.leave(unittest.TextTestRunner(verbosity=2).run(suite))
