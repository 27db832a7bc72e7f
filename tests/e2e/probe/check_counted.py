#!/usr/bin/python3
"""The wrappers against a program that counts its own calls, without an agent:
the rings hold exactly these calls, identities agree across ranks without a
message, and the program's output is the same with and without the probe.

  check_counted.py BUILD_DIR RANKS ROUNDS SEED THREADS [raw]
"""
import collections
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import mpi_sessions  # noqa: E402, F401

build, ranks, arguments, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3:6], sys.argv[6:]
tool = os.path.join(build, "tests", "segment_tool")
program = next(p for p in (os.path.join(build, "tests", "counted"), os.path.join(build, "counted")) if os.path.exists(p))
libraries = " ".join(os.path.join(build, name) for name in ("liblockstep.so", "liblockstep-mpi.so"))
failures = []


def check(condition, text):
    if not condition:
        failures.append(text)


def run(directory, traced):
    wrapper = os.path.join(directory, "wrap.sh")
    with open(wrapper, "w") as file:
        file.write("#!/bin/sh\n")
        if traced:
            file.write(f"export LOCKSTEP_SEGMENT={directory}/segment-$OMPI_COMM_WORLD_RANK\n")
            file.write(f"export LD_PRELOAD='{libraries}'\n")
        file.write('exec "$@"\n')
    os.chmod(wrapper, 0o755)
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), wrapper, program,
               os.path.join(directory, "plain" if not traced else "counts"), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240)
    return done.returncode, sorted(done.stdout.splitlines()), done.stderr


with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
    for rank in range(ranks):
        subprocess.run([tool, "make", f"{directory}/segment-{rank}", *mode], check=True)
    plain, traced = run(directory, False), run(directory, True)
    check(plain == traced, f"output differs: {plain} {traced}")
    check(plain[0] == 0, f"the program failed: {plain}")

    by_instance = collections.defaultdict(dict)  # (communicator, seq) -> rank -> function
    members = {}
    for rank in range(ranks):
        dump = subprocess.run([tool, "dump", f"{directory}/segment-{rank}"], stdout=subprocess.PIPE, text=True,
                              check=True).stdout
        found, comms = collections.Counter(), {}
        for line in dump.splitlines():
            if line.startswith("process"):
                check(f"rank={rank} source=1" in line and "self_test=1" in line, line)
                check("initialized=1 finalized=1 no_ring=0" in line, line)
                continue
            kind, rest = line.split(" ", 2)[2].split(" ", 1)
            if kind == "comm":
                fields = dict(part.split("=") for part in rest.split()[1:])
                if int(fields["flags"]) & 0x60 == 0:
                    comms[int(rest.split()[0])] = fields
        posts, completed = collections.Counter(), collections.Counter()
        for line in dump.splitlines():
            if line.startswith("process"):
                continue
            kind, rest = line.split(" ", 2)[2].split(" ", 1)
            name = rest.split()[0]
            if kind == "mpi":
                fields = dict(part.split("=") for part in rest.split()[1:])
                found[name] += 1
                check(int(fields["ns"]) < 1 << 62, "a call ends before it begins: " + line)
                if fields["request"] != "0" and not name.endswith("_init") and name != "MPI_Request_free":
                    posts[fields["request"]] += 1
                collective = re.fullmatch(r"MPI_I?(all|barrier|bcast|reduce|gather|scatter|scan)\w*", name, re.I)
                if collective and not name.endswith("_init"):
                    comm = comms[int(fields["comm"])]
                    by_instance[comm["id"], int(fields["seq"])][rank] = name
            elif kind == "poll":
                found[name] += int(re.search(r"calls=(\d+)", rest)[1])
            elif kind == "completion":
                flags = int(re.search(r"flags=(\d+)", rest)[1])
                request = re.search(r"request=(\w+)", rest)[1]
                if request == "0" or flags & 8:
                    continue
                if flags & 16:
                    posts[request] += 1  # A start.
                else:
                    completed[request] += 1
            elif kind == "kind":
                check("9" not in rest.split(), "records were dropped")
        check(posts == completed, f"rank {rank}: posts and completions differ by {posts - completed} {completed - posts}")
        counted = {}
        for line in open(f"{directory}/counts-{rank}"):
            name, count = line.split()
            counted[name] = int(count)
        check(dict(found) == counted,
              f"rank {rank}: {[(n, counted.get(n), found.get(n)) for n in sorted(set(counted) | set(found)) if counted.get(n, 0) != found.get(n, 0)]}")
        for fields in comms.values():
            members.setdefault(fields["id"], []).append((rank, int(fields["size"]), int(fields["flags"])))
    for identity, seen in members.items():
        size, flags = seen[0][1], seen[0][2]
        # An inter-communicator's size is the local group's: of two equal groups the same.
        sizes = {size for _, size, _ in seen}
        expected = size if flags != 1 else sum(sizes) if len(sizes) > 1 else 2 * size
        check(len(seen) == expected, f"communicator {identity}: {expected} members, seen {seen}")
    for (identity, seq), names in by_instance.items():
        check(len(set(names.values())) == 1, f"instance {identity} {seq}: {names}")
        seen = members[identity]
        check(len(names) == len(seen), f"instance {identity} {seq}: only on {sorted(names)}")
    print(f"{sum(len(n) for n in by_instance.values())} collective calls in {len(by_instance)} instances, "
          f"{len(members)} communicators")

for failure in failures[:20]:
    print("FAILED:", failure)
sys.exit(1 if failures else 0)
