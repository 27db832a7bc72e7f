"""Jobs over hosts that share no directory, of launchers that have no PMIx: where rank 0's agent is comes by another way.

usage: launchers_test.py BUILD_DIR Hydra MPI_DIR | Torchrun PYTHON

MPI_DIR  an MPICH, or a library with its ABI, with bin/mpiexec.hydra. Programs are made by the mpicc of MPI_DIR, or of the
         directory behind "@" (Intel MPI's runtime has none)
PYTHON   has PyTorch
"""
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

from four_hosts import h5py, jobs, of_hosts
from four_hosts import FourHosts as Case

HERE = pathlib.Path(__file__).resolve().parent
WITH = sys.argv[3]


class OnOwnDisks(Case):
    def run_of_rank_0(self):
        """The node and the directory in which rank 0's file is."""
        found = [(node, path.parents[1]) for node in self.hosts.nodes
                 for path in pathlib.Path(self.hosts.path(node, of_hosts.OWN)).glob("lockstep.out/2*/ranks/rank-00000.h5")]
        self.assertEqual(len(found), 1)
        return found[0]

    def check_arrived(self, said, hosts, ranks):
        """All files are in rank 0's directory, as they are where they were made, and nothing else is."""
        self.assertRegex(said, rf"(?m)^lockstep: rank files of {hosts} hosts?, [\d.]+ [kM]?B, arrived in lockstep\.out/\S+$")
        self.assertNotIn("lockstep gather", said)
        node, run = self.run_of_rank_0()
        names = sorted(name for name in os.listdir(run / "ranks") if not name.startswith((".agent-", ".launch-")))
        self.assertEqual(names, [f"rank-{rank:05}.h5" for rank in range(ranks)], said)
        made = {path.name: path.read_bytes() for other in self.hosts.nodes if other != node
                for path in pathlib.Path(self.hosts.path(other, of_hosts.OWN)).glob("lockstep.out/2*/ranks/rank-*.h5")}
        self.assertTrue(made)
        for name, content in made.items():
            self.assertEqual((run / "ranks" / name).read_bytes(), content, name)
        return node, run

    def check_clocks_of(self, node, run, ranks):
        """Offsets from rank 0's clock against those that the hosts were made with; one of each host measures."""
        analysis = self.analyze("lockstep.out/" + run.name, node, of_hosts.OWN)
        self.assertEqual(analysis["run"]["ranks_missing"], [])
        self.assertEqual(analysis["trust"]["clock_violations"], 0)
        place = {row["rank"]: row["node"] for row in analysis["ranks"]}
        with h5py.File(run / "timeline.h5") as file:
            clock = {name: column[:].tolist() for name, column in file["clock"].items()}
        for i, rank in enumerate(clock["rank"]):
            true_ns = (self.hosts.shift_s[node] - self.hosts.shift_s[place[rank]]) * 10**9
            self.assertLessEqual(abs(clock["offset_ns"][i] - true_ns), clock["base_error_ns"][i], f"rank {rank}")
            self.assertLess(clock["base_error_ns"][i], 1_000_000, f"rank {rank}")
        self.assertEqual(set(clock["rank"]), set(range(ranks)))
        for rank in range(ranks):
            self.assertNotIn("clock_trouble", jobs.RankFile(run / f"ranks/rank-{rank:05}.h5").meta)


class Hydra(OnOwnDisks):
    def setUp(self):
        place, _, made_by = WITH.partition("@")
        self.mpi, self.mpicc = pathlib.Path(place), pathlib.Path(made_by or place) / "bin/mpicc"
        if not (self.mpi / "bin/mpiexec.hydra").exists() or not self.mpicc.exists():
            self.skipTest(f"no MPI with bin/mpiexec.hydra in {self.mpi}, or no {self.mpicc}")
        super().setUp()
        self.libraries = f"{self.mpi}/lib"
        self.program = jobs.BUILD / "tests/mpis" / str(self.mpicc.parents[1]).strip("/").replace("/", "_") / "chatty"
        source = HERE / "chatty.c"
        if not self.program.exists() or self.program.stat().st_mtime < source.stat().st_mtime:
            self.program.parent.mkdir(parents=True, exist_ok=True)
            made = self.program.with_suffix(f".{os.getpid()}")
            subprocess.run([self.mpicc, source, "-o", made], check=True, env=dict(os.environ, LD_LIBRARY_PATH=str(self.mpicc.parents[1] / "lib")))
            made.rename(self.program)

    def mpiexec(self, words, cwd=of_hosts.OWN, variables=()):
        hosts = ",".join(f"{node}:2" for node in self.hosts.nodes)
        more = [word for name, value in variables for word in ("-genv", name, value)]
        return self.hosts.run("head", [self.mpi / "bin/mpiexec.hydra", "-launcher", "rsh", "-launcher-exec", of_hosts.HERE + "/rsh", "-iface", "eth0",
                                       "-hosts", hosts, "-n", "8", "-genv", "LD_LIBRARY_PATH", self.libraries, "-genv", "I_MPI_PIN", "0", *more,
                                       "-wdir", cwd, *words], cwd=cwd, env=dict(jobs.ENVIRONMENT, LD_LIBRARY_PATH=self.libraries), timeout=100)

    def test_one_run_without_a_further_command(self):
        # More addresses than one name has room for.
        made = self.hosts.run("node1", ["sh", "-ec", "for k in 1 2 3 4 5 6 7 8 9 10 11; do ip addr add 172.20.$k.1/24 dev eth0; done; ip -6 addr add fd88::1/64 dev eth0 nodad"])
        self.assertEqual(made.returncode, 0, made.stderr)
        words = [self.program, "99", "0", "150"]
        bare = self.mpiexec(words)
        self.assertEqual(bare.returncode, 0, bare.stderr)
        done = self.mpiexec([jobs.LOCKSTEP, "run", "--after", "none", "--", *words])
        self.assertEqual((done.returncode, done.stdout), (0, bare.stdout), done.stderr)
        node, run = self.check_arrived(done.stderr, 3, 8)
        self.assertEqual(node, "node1")
        self.check_clocks_of(node, run, 8)

    def test_a_server_for_names_is_not_told(self):
        """Whoever reaches it may ask it for every name."""
        done = self.mpiexec([jobs.LOCKSTEP, "run", "--after", "none", "--after-wait", "6", "--", self.program], variables=[("HYDRA_NAMESERVER", "node1:6392")])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("arrived", done.stderr)
        self.assertRegex(done.stderr, "no files from ranks 2-7 in .*lockstep gather")


class Torchrun(OnOwnDisks):
    SCRIPT = HERE / "torch_job.py"

    def setUp(self):
        self.python = WITH
        found = subprocess.run([self.python, "-c", "import torch.distributed; print(torch.__version__)"], capture_output=True, text=True)
        if found.returncode != 0:
            self.skipTest(f"{self.python} has no PyTorch")
        # The launcher of PyTorch 1.13 fails with Python 3.11 where its workers' output goes nowhere, and knows no --local_addr.
        self.old = found.stdout.startswith("1.")
        self.logs = ["-r", "1", "-t", "1", "--log_dir", of_hosts.OWN + "/logs"] if self.old else []
        super().setUp()
        self.hosts.nodes = self.hosts.nodes[:2]

    def launch(self, rendezvous, each, recorded=("node1", "node2"), steps=40):
        """Gives what all nodes said."""
        started, said = [], ""
        for number, node in enumerate(self.hosts.nodes):
            of_node = ["--node_rank", str(number), "--master_addr", "node1", "--master_port", "29511"] if rendezvous == "static" else \
                ["--rdzv_backend", "c10d", "--rdzv_endpoint", "node1:29511", "--rdzv_id", "job", *([] if self.old else ["--local_addr", node])]
            words = [self.python, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc_per_node", str(each), *of_node, *self.logs, self.SCRIPT, str(steps)]
            if node in recorded:
                words = [jobs.LOCKSTEP, "run", "--after", "none", "--after-wait", "8", "--", *words]
            started.append(self.hosts.start(node, words, cwd=of_hosts.OWN, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                            env=dict(jobs.ENVIRONMENT, GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1")))
        for process in started:
            with process:
                out, _ = process.communicate(timeout=100)
                said += out
                self.assertEqual(process.returncode, 0, said)
        ranks = 2 * each
        self.assertEqual(len(re.findall(rf"(?m)rank \d: sum {ranks * (ranks - 1) // 2}$", said)), ranks, said)
        return said

    def test_static_rendezvous(self):
        node, run = self.check_arrived(self.launch("static", 2), 1, 4)
        self.check_clocks_of(node, run, 4)

    def test_c10d_rendezvous(self):
        node, run = self.check_arrived(self.launch("c10d", 1), 1, 2)
        self.check_clocks_of(node, run, 2)

    def test_a_host_without_lockstep(self):
        """Rank 0 waits for its answer once, for two seconds."""
        said = self.launch("static", 1, recorded=("node1",), steps=5)
        self.assertNotIn("arrived", said)
        took = [float(word) for word in re.findall(r"(?m)rank 0: joined in ([\d.]+) s$", said)]
        self.assertEqual(len(took), 1, said)
        self.assertLess(took[0], jobs.on_this_machine(10))
        self.assertRegex(said, "no files from rank 1 in ")


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(globals()[sys.argv[2]])
    if len(sys.argv) > 4:
        suite = unittest.TestSuite(globals()[sys.argv[2]](name) for name in sys.argv[4:])
    jobs.leave(unittest.TextTestRunner(verbosity=2).run(suite))
