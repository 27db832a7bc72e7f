#!/usr/bin/python3
"""Whatever one rank lacks, the job's results are bit by bit what they are without
Lockstep, its exit code too, and nobody waits.

  sacred_test.py BUILD_DIR matrix [all]         one rank at a time, in every way
  sacred_test.py BUILD_DIR random [RUNS [SEED]] random ranks, ways and moments

Behind these NAME=VALUE ..: variables of all ranks, such as LOCKSTEP_STACKS=all:50,calls.
"""
import os
import pathlib
import random
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from jobs import BUILD, LOCKSTEP, MPIRUN, SOURCE, on_this_machine, run  # noqa: E402

JOB = BUILD / "tests/sacred_job"
DEGRADE = SOURCE / "tests/e2e/sacred/degrade.sh"
ENVIRONMENT = {"OTHER_TOOL": str(BUILD / "tests/libsacred_other_tool.so")}
RANKS = 4
OPERATIONS = 20
# Between agent and program, in front of the agent, and within the program.
INNER = ["no_preload", "no_segment", "no_segment_file", "no_environment", "other_tool", "late_tool", "late"]
OUTER = ["bare", "other_protocol", "LOCKSTEP_CLOCK=off", "LOCKSTEP_CLOCK=tcp", "LOCKSTEP_GPU=off",
         "LOCKSTEP_SPOOL_DIR=/nonexistent", "LOCKSTEP_STEPS=1:3", "LOCKSTEP_RING_SIZE=1MiB", "LOCKSTEP_START=off", "LOCKSTEP_STACKS=all:50,calls"]
WITHIN = ["off", "unlink", "stop", "fork"]
ENDS = ["exit", "pmpi"]


def other_protocol(place):
    """The probe of a version that means something else by a yes."""
    place = pathlib.Path(place)
    for library in BUILD.glob("liblockstep*.so"):
        data = library.read_bytes()
        if "ompi" in library.name:
            assert b"lockstep.1.here" in data, "the protocol's number is not where it was"
            data = data.replace(b"lockstep.1.", b"lockstep.0.")
        (place / library.name).write_bytes(data)
    shutil.copytree(BUILD / "python", place / "python")
    return str(place)


def words(seed, cwd, inner=None, outer=None, within=None, more=(), traced=True, ranks=RANKS):
    job = [JOB, seed, OPERATIONS, *([within] if within else []), *more]
    if not traced:
        return [*MPIRUN, "-np", ranks, *job]
    command = [LOCKSTEP, "run", "--after", "none", "-o", os.path.join(cwd, "run"), "--"]
    for rank, way in inner or []:
        command += [DEGRADE, rank, way]
    front = []
    for rank, way in outer or []:
        front += [DEGRADE, rank, way]
    return [*MPIRUN, "-np", ranks, *front, *command, *job]


def compare(name, bare, traced, seconds):
    """Problems, none if there is no difference."""
    problems = []
    if sorted(bare.stdout.splitlines()) != sorted(traced.stdout.splitlines()):
        problems.append(f"{name}: results differ\n  without: {bare.stdout.decode()}\n  with: {traced.stdout.decode()}")
    if bare.returncode != traced.returncode:
        problems.append(f"{name}: exit {traced.returncode}, without Lockstep {bare.returncode}\n{traced.stderr.decode()[-2000:]}")
    if traced.seconds > seconds:
        problems.append(f"{name}: {traced.seconds:.1f} s, without Lockstep {bare.seconds:.1f} s")
    return problems


def one(name, seed, bare=None, spare=20, more=(), ranks=RANKS, **what):
    with tempfile.TemporaryDirectory(prefix="lockstep-sacred-") as cwd:
        if bare is None:
            bare = run(words(seed, cwd, more=more, traced=False, ranks=ranks), cwd, ENVIRONMENT)
        try:
            traced = run(words(seed, cwd, more=more, ranks=ranks, **what), cwd, ENVIRONMENT, timeout=180)
        except Exception as error:  # pylint: disable=broad-except
            return bare, [f"{name}: {error}"]
        return bare, compare(name, bare, traced, bare.seconds + on_this_machine(spare))


def matrix(every):
    problems, count = [], 0
    bare, mixed = None, None
    ranks = range(RANKS) if every else (0, 2)

    def check(name, **what):
        nonlocal bare, count
        bare, found = one(name, 7, bare, **what)
        problems.extend(found)
        count += 1

    for rank in ranks:
        for way in INNER:
            check(f"{way} on {rank}", inner=[(rank, way)])
        for way in OUTER:
            check(f"{way} on {rank}", outer=[(rank, way)])
        for way in WITHIN:
            check(f"{way} within {rank}", within=f"{rank}:{way}@{OPERATIONS // 2}")
    for rank in ranks if every else (1,):
        for how in ENDS:
            _, found = one(f"{how} ends {rank}", 7, more=[f"end={rank}:{how}"], spare=12)
            problems += found
            count += 1
    for more in (["spawn"], ["thread"]):
        for way in [None, "no_preload"]:
            mixed, found = one(f"{more[0]} {way}", 11, more=more, inner=[(1, way)] if way else None)
            problems += found
            count += 1
    for ranks in (1, 2):
        problems += one(f"{ranks} ranks", 5, ranks=ranks)[1]
        count += 1
    # Several programs, of which one is not under Lockstep: one world.
    with tempfile.TemporaryDirectory(prefix="lockstep-sacred-") as cwd:
        job = [JOB, 7, OPERATIONS]
        command = [LOCKSTEP, "run", "--after", "none", "-o", os.path.join(cwd, "run"), "--", *job]
        for name, first, second in (("first part bare", job, command), ("second part bare", command, job),
                                    ("two parts", command, command)):
            traced = run([*MPIRUN, "-np", 1, *first, ":", "-np", RANKS - 1, *second], cwd, ENVIRONMENT, timeout=180)
            problems += compare(name, bare, traced, bare.seconds + on_this_machine(20))
            count += 1
    return count, problems


def at_random(runs, seed):
    """Any number of ranks, each in its own way; several ways of one rank, too."""
    generator = random.Random(seed)
    problems, bares = [], {}
    for number in range(runs):
        ranks = generator.choice([2, 3, 4, 4, 5])
        job = generator.randrange(8)
        pick = lambda ways: [(generator.randrange(ranks), generator.choice(ways)) for _ in range(generator.choice([0, 0, 1, 1, 2]))]
        inner, outer = pick(INNER[:-1]), pick(OUTER)
        within = f"{generator.randrange(ranks)}:{generator.choice(WITHIN)}@{generator.randrange(OPERATIONS)}"
        name = f"run {number} (seed {seed}): {ranks} ranks, job {job}, {inner} {outer} {within}"
        bares[ranks, job], found = one(name, job, bares.get((ranks, job)), ranks=ranks, inner=inner, outer=outer, within=within)
        problems += found
        for problem in found:
            print(problem, flush=True)
    return runs, problems


if __name__ == "__main__":
    ENVIRONMENT |= dict(word.split("=", 1) for word in sys.argv[3:] if "=" in word)
    sys.argv = [word for word in sys.argv if "=" not in word]
    OTHER = tempfile.TemporaryDirectory(prefix="lockstep-other-")
    ENVIRONMENT["OTHER_PROTOCOL"] = other_protocol(OTHER.name)
    if sys.argv[2] == "matrix":
        done, wrong = matrix(len(sys.argv) > 3)
    else:
        seed = sys.argv[4] if len(sys.argv) > 4 else os.environ.get("LOCKSTEP_TEST_SEED", "1")
        done, wrong = at_random(int(sys.argv[3]) if len(sys.argv) > 3 else 12, int(seed))
    for line in wrong:
        print(line)
    print(f"{done} runs, {len(wrong)} wrong")
    sys.exit(bool(wrong))
