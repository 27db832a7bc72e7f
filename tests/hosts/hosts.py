"""Several hosts on one machine, out of Linux namespaces (README.md says what each has of its own).

  with Hosts(4) as hosts:                       # head, from where jobs are started, and node1 .. node4
      done = hosts.mpirun(2, [program, ...])    # two ranks on each node
      hosts.limit("node3", "200mbit"); hosts.link("node2", up=False); hosts.power_off("node1")

From a shell: hosts.py 4 [COMMAND ..] runs the command (a shell without one) on head.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
NAMESPACES = {"net": "net", "uts": "uts", "ipc": "ipc", "mount": "mnt", "pid": "pid", "time": "time"}
SHARED, OWN = "/mnt/shared", "/mnt/own"
NETWORK = "10.77.0.0/24"


def why_not():
    """Why hosts cannot be made here; None if they can."""
    if os.geteuid() != 0:
        return "hosts out of namespaces need root"
    with open("/proc/self/uid_map") as file:
        if file.read().split() != ["0", "0", str(2**32 - 1)]:  # Its root may enter no time namespace.
            return "hosts out of namespaces need root outside of a user namespace"
    for program in ("unshare", "nsenter", "ip", "tc", "mpirun", "hostname"):
        if not shutil.which(program):
            return f"hosts out of namespaces need the program {program}"
    tried = subprocess.run(
        ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--mount-proc", "--time", "--monotonic", "1", "--fork", "sh", "-c",
         "mount -t tmpfs none /mnt && ip link add v0 type veth peer name v1 && ip link add br0 type bridge && "
         "tc qdisc add dev v0 root tbf rate 1mbit burst 64kb latency 200ms"], capture_output=True, text=True)
    return None if tried.returncode == 0 else "this machine lets no hosts be made: " + tried.stderr.strip().replace("\n", "; ")


class Hosts:
    """The hosts; all is gone when this is closed or the process that made it ends, by whatever signal."""

    def __init__(self, nodes, shift_s=1000, visible=()):
        self.nodes = [f"node{i + 1}" for i in range(nodes)]
        # What CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW of a host show more than the machine's.
        self.shift_s = {"head": 0, **{name: (i + 1) * shift_s for i, name in enumerate(self.nodes)}}
        paths = ":".join(os.path.realpath(path) for path in (SOURCE, *visible))
        self._errors = tempfile.TemporaryFile()
        self._rack = subprocess.Popen(
            ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child",
             os.path.join(HERE, "rack"), "head", str(nodes), str(shift_s), paths],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True)
        self._pids = {}  # As head sees them.
        for line in self._rack.stdout:
            words = line.decode().split()
            if words == ["up"]:
                break
            self._pids[words[0]] = words[1]
        else:
            self._rack.wait()
            self._errors.seek(0)
            raise RuntimeError("the hosts did not come up: " + self._errors.read().decode(errors="replace"))
        with open(f"/proc/{self._rack.pid}/task/{self._rack.pid}/children") as file:
            self._head = file.read().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._rack.stdin.close()
        try:
            self._rack.wait(30)
        except subprocess.TimeoutExpired:
            self._rack.kill()  # unshare --kill-child
            self._rack.wait()
        self._rack.stdout.close()
        self._errors.close()

    def _proc(self, host):
        return f"/proc/{self._head}/root/proc/{self._pids[host]}"

    def _enter(self, host, namespaces=tuple(NAMESPACES)):
        return ["nsenter", *(f"--{name}={self._proc(host)}/ns/{NAMESPACES[name]}" for name in namespaces), "--"]

    def path(self, host, path):
        """Where this process finds a path of a host."""
        return f"{self._proc(host)}/root{path}"

    def words(self, host, words, cwd=SHARED):
        """The command that starts `words` on a host, from here."""
        return [*self._enter(host), "env", "-C", cwd, *map(str, words)]

    def start(self, host, words, cwd=SHARED, **more):
        return subprocess.Popen(self.words(host, words, cwd), start_new_session=True, **more)

    def run(self, host, words, cwd=SHARED, timeout=120, **more):
        """subprocess.run with captured text; with all that it started it is killed after `timeout` seconds."""
        with self.start(host, words, cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                        errors="replace", **more) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def mpirun_words(self, each, words, nodes=None):
        """For head: `each` ranks on each node. Nodes cannot start anything on each other, so that head starts all."""
        nodes = nodes or self.nodes
        mca = {"plm_rsh_agent": os.path.join(HERE, "rsh"), "plm_rsh_no_tree_spawn": 1, "btl": "tcp,self", "pml": "ob1",
               "btl_tcp_if_include": NETWORK, "oob_tcp_if_include": NETWORK, "mpi_yield_when_idle": 1}
        return ["mpirun", "--allow-run-as-root", "--bind-to", "none",
                *(word for name, value in mca.items() for word in ("--mca", name, str(value))),
                "--host", ",".join(f"{node}:{each}" for node in nodes), "-np", str(each * len(nodes)), *words]

    def mpirun(self, each, words, nodes=None, **more):
        return self.run("head", self.mpirun_words(each, words, nodes), **more)

    def sent_bytes(self, host):
        """What has left its cable so far."""
        with open(self._proc(host) + "/net/dev") as file:
            return int(next(line for line in file if line.strip().startswith("eth0:")).split()[9])

    def link(self, host, up):
        """Plugs its cable in or out, at the switch."""
        subprocess.run([*self._enter("switch", ["net"]), "ip", "link", "set", host, "up" if up else "down"], check=True)

    def limit(self, host, rate):
        """What it sends and receives, as tc writes rates ("200mbit"); None: as fast as can be."""
        for place, device in (("switch", host), (host, "eth0")):
            enter = self._enter(place, ["net"])
            subprocess.run([*enter, "tc", "qdisc", "del", "dev", device, "root"], capture_output=True)
            if rate:
                subprocess.run([*enter, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms"],
                               check=True)

    def kill(self, host):
        """All that runs there ends at once, and its kernel closes what that had open: others are told by the network."""
        subprocess.run([*self._enter("head", ["pid", "mount"]), "kill", "-KILL", self._pids[host]], check=True)

    def power_off(self, host):
        """As `kill`, but nobody is told."""
        self.link(host, up=False)
        self.kill(host)


def main():
    if len(sys.argv) < 2 or not sys.argv[1].isdecimal():
        sys.exit(__doc__)
    if reason := why_not():
        print(reason, file=sys.stderr)
        return 77
    with Hosts(int(sys.argv[1])) as hosts:
        print("on head; jobs start with:\n  " + " ".join(hosts.mpirun_words(1, ["PROGRAM"])), file=sys.stderr)
        return subprocess.run(hosts.words("head", sys.argv[2:] or ["bash"])).returncode


if __name__ == "__main__":
    sys.exit(main())
