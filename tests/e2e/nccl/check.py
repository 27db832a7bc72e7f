"""NCCL's calls of four ranks under `lockstep run`, on the tests' libnccl and GPU: the job is
as it is without Lockstep, and the rank files hold each operation once, tied to its kernel.
Usage: check.py BUILD_DIR CASE"""

import collections
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
try:
    import jobs
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
if shutil.which("mpirun") is None:
    print("skipped: no mpirun")
    sys.exit(77)

JOB = jobs.BUILD / "tests/e2e_nccl_job"
RANKS = 4
KINDS = {1: "all-reduce", 2: "all-gather", 3: "reduce-scatter", 4: "all-to-all", 6: "broadcast", 7: "reduce"}


def check(holds, what):
    if not holds:
        raise AssertionError(what)


class Job:
    """The job bare and under Lockstep."""

    def __init__(self, steps=10, options=(), env=None):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-nccl-"))
        env = dict({"LOCKSTEP_TEST_JOB": "1", "LOCKSTEP_CUPTI": ""}, **(env or {}))
        job = [str(JOB), "--steps", str(steps)]
        launch = [*jobs.MPIRUN, "-np", str(RANKS)]
        self.bare = jobs.run([*launch, *job], self.place, env)
        self.traced = jobs.run([*launch, jobs.LOCKSTEP, "run", "-o", "out", "--after", "none", *options, "--", *job],
                               self.place, env)
        self.run = jobs.Run(self.place / "out")
        self.files = [file for _, file in sorted(self.run.files().items())]

    def same(self):
        check(sorted(self.bare.stdout.splitlines()) == sorted(self.traced.stdout.splitlines()),
              f"output: {self.bare.stdout} {self.traced.stdout}\n{self.traced.stderr.decode()}")
        check(b"violations 0" in self.bare.stdout, "the job itself")
        check(self.bare.returncode == self.traced.returncode, "exit code")
        check(len(self.files) == RANKS, f"{len(self.files)} files: {self.traced.stderr.decode()}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        if kind is None:
            shutil.rmtree(self.place, ignore_errors=True)
        else:
            print(self.place, self.traced.stderr.decode()[-3000:])


def named(file):
    """Row of comms -> what it is, by size and parent."""
    found = {}
    for row in range(file.rows("comms")):
        if file.column("comms", "kind")[row] != 3:
            continue
        size = int(file.column("comms", "size")[row])
        found[row] = (size, int(file.column("comms", "rank")[row]), int(file.column("comms", "global_id")[row]),
                      file.text(file.column("comms", "name")[row]))
    return found


def operations(file):
    """(kind, elements of the whole array, reduction, mode) -> how often"""
    columns = [file.column("collectives", name) for name in ("kind", "count", "reduction", "mode")]
    return collections.Counter((KINDS.get(int(kind), int(kind)), int(count), int(reduction), int(mode))
                               for kind, count, reduction, mode in zip(*columns))


def expected(steps, graphs=True):
    """`graphs`: whether runs of captured operations are known: interface 4 does not tell captured ones apart."""
    per_step = [("all-reduce", 1000 << bucket, 5, 3) for bucket in range(4)]
    per_step += [("all-reduce", 64, 1, 3), ("all-reduce", 16, 3, 3), ("reduce-scatter", 16, 4, 3),
                 ("all-to-all", 24, 0, 3), ("all-reduce", 7, 1, 3), ("reduce", 9, 2, 3), ("all-reduce", 33, 1, 3)]
    per_step += [("broadcast", count, 0, 3) for count in (5, 20, 21, 34)]
    if graphs:
        per_step += [("all-reduce", 77, 1, 3), ("broadcast", 78, 0, 3), ("all-reduce", 80, 3, 3)]
    return collections.Counter({each: steps for each in per_step})


def check_file(file, steps, rank, version, proxies):
    comms = named(file)
    check(sorted(size for size, *_ in comms.values()) == [1, 2, 2, 4], f"communicators {comms}")
    world = next(each for each in comms.values() if each[0] == 4)
    check(world[1] == rank and world[3] == "world", f"{world}")
    found = operations(file)
    graphs = version >= 5
    for what, count in expected(steps, graphs).items():
        check(found[what] == count, f"rank {rank}: {what} {found[what]} times, not {count}: {found}")
    kinds = collections.Counter(KINDS.get(int(kind), int(kind)) for kind in file.column("collectives", "kind"))
    # What is captured is no operation, its replays are; one of nothing is none.
    more = steps if graphs or proxies else 1
    check(kinds == {"all-reduce": 8 * steps + 2 * more, "all-gather": steps, "reduce-scatter": steps,
                    "all-to-all": steps, "broadcast": 4 * steps + more, "reduce": steps}, f"{kinds}")
    check(file.rows("p2p") == 2 * steps + 2 * more, f"{file.rows('p2p')} messages")
    directions = collections.Counter(int(each) for each in file.column("p2p", "direction"))
    check(directions == {0: steps + more, 1: steps + more}, f"{directions}")

    # Kernels: each has the operations that it carried.
    kernels = file.column("collectives", "kernel")
    shared = file.column("collectives", "kernel_operations")
    counts = file.column("collectives", "count")
    kind = file.column("collectives", "kind")
    names = file.column("kernels", "name")
    untied = 0
    for row, kernel in enumerate(kernels):
        captured = counts[row] in (77, 78, 80, 78 * 4)
        if counts[row] == 7 or captured and not graphs:  # Interface 4 counts a broadcast's bytes.
            continue
        if kernel == 0xffffffff:
            untied += 1
            continue
        check("ncclDevKernel" in file.text(names[kernel]), file.text(names[kernel]))
        together = 2 if counts[row] in (64, 20, 21, 33, 34) or kind[row] == 2 else 1
        check(shared[row] == together, f"row {row}: {shared[row]} share it")
    check(untied == 0, f"rank {rank}: {untied} operations without kernel")
    nccl = sum("ncclDevKernel" in file.text(name) for name in names)
    check(nccl == 17 * steps, f"{nccl} NCCL kernels")
    if graphs:
        check(all(kernel != 0xffffffff for kernel in file.column("p2p", "kernel")), "messages without kernel")
        for loss in ("NcclUntied", "NcclKernelUntied", "NcclEventOrphan"):
            check(loss not in file.losses, f"losses {file.losses}")
        # One key per run, the same on all ranks.
        keys = collections.Counter((int(seq), int(start)) for seq, start, count in
                                   zip(file.column("collectives", "seq"), file.column("collectives", "start"), counts)
                                   if count == 77)
        check(sorted(start for _, start in keys) == list(range(1, steps + 1)), f"{keys}")


def counts():
    for version, proxies in ((4, True), (5, False), (6, True), (7, False)):
        steps = 10 if version == 5 else 4
        env = {"FAKE_NCCL_PROFILER": str(version)}
        if proxies:
            env["FAKE_NCCL_PROXIES"] = "1"
        with Job(steps, env=env) as job:
            job.same()
            for rank, file in enumerate(job.files):
                check_file(file, steps, rank, version, proxies)
            # The same identities on all ranks, so that merge finds them all.
            code, analysis, text = job.run.analyze()
            check(analysis is not None, text)
            check(analysis["trust"]["unmatched_collectives"] == 0, f"{analysis['trust']} {text}")


def windows():
    with Job(12, ["--steps", "3:7"]) as job:
        job.same()
        for rank, file in enumerate(job.files):
            found = operations(file)
            # What was captured before the window is not known to be what runs in it.
            for what in expected(1, False):
                check(found[what] == 4, f"rank {rank}: {what} {found[what]} times: {found}")
            check(file.rows("steps") == 4, f"{file.rows('steps')} steps")
            check(len(named(file)) == 4, "communicators were made before the window")


def chained():
    """The user's own plugin still hears what it asked for."""
    other = jobs.BUILD / "tests/fake_nccl/libnccl-profiler-other5.so"
    place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-other-"))
    with Job(3, env={"NCCL_PROFILER_PLUGIN": str(other), "OTHER_PLUGIN_MASK": "2",
                     "OTHER_PLUGIN_OUT": str(place / "saw")}) as job:
        job.same()
        for rank, file in enumerate(job.files):
            saw = dict(line.rsplit(": ", 1) for line in (place / f"saw{rank}").read_text().splitlines())
            check(int(saw["finalize"]) == 4 and "foreign handle" not in saw, f"{saw}")
            check(file.losses.get("NcclPluginChained") == 1, f"{file.losses}")
            found = operations(file)
            for what in expected(1):
                check(found[what] == 3, f"rank {rank}: {what} {found[what]} times: {found}")
    shutil.rmtree(place)


if __name__ == "__main__":
    {"Counts": counts, "Windows": windows, "Chained": chained}[sys.argv[2]]()
