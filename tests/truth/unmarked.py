#!/usr/bin/env python3
"""Random programs without marked steps, in which one rank is slow or none is: who is named, and at what price?

usage: unmarked.py BUILD_DIR FIRST LAST          one of each kind for each seed, simulated (make_run)
       unmarked.py BUILD_DIR FIRST LAST --live   with MPI on two ranks (unmarked_app)

The price is held against a run of the same program without what slows the rank; live neither of the two is recorded.
  even    repeats of collectives of all kinds with work of like length before them; the rank is slow in all of it
  rare    few collectives that much work precedes, and between them hundreds that another rank comes late to by little
  passed  messages to neighbours, most blocking or with a handshake, and few collectives or none
  unseen  what shows lateness late, elsewhere or not at all: reductions to a root, posted collectives, sub-communicators,
          chains, several neighbours; at last MPI_Finalize
"""
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

LIVE = sys.argv[4:] == ["--live"]
HEAD = "ranks {ranks}\nsteps 1\nseed {seed}\nmarks off\nnetwork alpha={alpha}us bandwidth=5GB/s skew={skew}ns\n"


def number_of_ranks(draw, choices):
    drawn = draw.choice(choices)
    return 2 if LIVE else drawn


def collective(draw, ranks, most):
    kind = draw.choice(["allreduce", "allreduce", "bcast", "reduce", "barrier", "allgather"])
    size = "" if kind == "barrier" else f" {8 * draw.randint(1, most)}"
    root = f" root={draw.randrange(ranks)}" if kind in ("bcast", "reduce") else ""
    return f"{kind}{size}{root}\n"


def even(seed):
    draw = random.Random(seed)
    ranks, body = number_of_ranks(draw, [2, 2, 3, 4, 8]), "step\n"
    for _ in range(draw.randint(3, 8)):
        work_us = draw.choice([20, 100, 500, 2000]) * draw.uniform(0.5, 2)
        for _ in range(draw.randint(2, 6)):
            body += f"  repeat {draw.randint(2, 30)}\n"
            for _ in range(draw.randint(1, 3)):
                body += f"    compute {max(1, int(work_us * draw.uniform(0.5, 1.5)))}us name=work jitter={draw.choice([0.5, 2, 5, 10])}%\n"
                body += "    " + collective(draw, ranks, 5000)
            body += "  end\n"
    who = draw.randrange(ranks)
    head = HEAD.format(ranks=ranks, seed=seed, alpha=draw.choice([2, 10, 20]), skew=draw.choice([100, 2000]))
    return who, f"slow rank={who} factor={draw.choice([1.1, 1.3, 1.6, 2])} at=work\n", head, body + "end\n"


def rare(seed):
    draw = random.Random(seed)
    ranks, body = number_of_ranks(draw, [2, 2, 3, 5, 8, 16]), "step\n"
    who, times = draw.randrange(ranks), draw.choice([6, 8, 12, 20, 40])
    for _ in range(times):
        awaited = draw.choice(["barrier", "allreduce 8", f"bcast 8 root={who}", "allgather 64"])
        body += f"  compute {draw.randint(5000, 30000)}us name=before jitter=3%\n  {awaited}\n"
        for _ in range(draw.randint(1, 4)):
            body += f"  repeat {draw.randint(3, 40)}\n    compute {draw.choice([2, 5, 20])}us name=between jitter=5%\n"
            body += "    " + collective(draw, ranks, 600) + "  end\n"
    head = HEAD.format(ranks=ranks, seed=seed, alpha=5, skew=500)
    head += f"slow rank={(who + 1) % ranks} factor=1.2 at=between\n"
    return who, f"slow rank={who} factor={draw.choice([1.5, 3, 6])} at=before\n", head, body + "end\n"


def passed(seed):
    draw = random.Random(seed)
    ranks, body = number_of_ranks(draw, [2, 2, 3, 4, 8]), "step\n"
    collectives = draw.random() < 0.5
    for _ in range(draw.randint(2, 5)):
        work_us = draw.choice([100, 500, 2000]) * draw.uniform(0.5, 2)
        body += f"  repeat {draw.randint(20, 60)}\n"
        for _ in range(draw.randint(1, 2)):
            kind = draw.choice(["ring {}", "ring {} handshake", "halo {}", "halo {} handshake"]).format(draw.choice([64, 4096, 100000]))
            body += f"    compute {max(1, int(work_us * draw.uniform(0.5, 1.5)))}us name=work jitter={draw.choice([0.5, 2, 5])}%\n    {kind}\n"
        body += "  end\n"
        if collectives:
            body += "  " + collective(draw, ranks, 500)
    body += "end\nteardown\n  finalize\n"
    who = draw.randrange(ranks)
    head = HEAD.format(ranks=ranks, seed=seed, alpha=draw.choice([2, 10]), skew=draw.choice([100, 2000]))
    return who, f"slow rank={who} factor={draw.choice([1.2, 1.5, 2])} at=work\n", head, body + "end\n"


def unseen(seed):
    draw = random.Random(seed)
    ranks = number_of_ranks(draw, [2, 4, 6, 8, 16])
    size, work_us = draw.choice([8, 4096, 100000]), draw.choice([300, 1000, 4000]) * draw.uniform(0.5, 2)
    work = f"    compute {int(work_us)}us name=work jitter={draw.choice([0.5, 2, 5])}%{{}}\n"
    root, on = draw.randrange(ranks), " on=1:{}"
    chain = "".join((f"    recv m{r} on=1:{r}\n" if r else "") + work.format(on.format(r)) +
                    (f"    send {size} to=1 as=m{r + 1} on=1:{r}\n" if r + 1 < ranks else "") for r in range(ranks))
    body = draw.choice([
        work.format("") + f"    reduce {size} root={root}\n",
        work.format("") + f"    gather {size} root={root}\n    bcast {size} root={root}\n",
        f"    iallreduce {size} as=x\n" + work.format("") + "    wait x\n",
        work.format("") + f"    halo {size}\n    allreduce 8 comm=row\n",
        work.format("") + f"    ring {size} shift={draw.choice([1, 2, 3])}\n",
        work.format("") + f"    halo {size}\n    halo {size} shift={draw.choice([2, 3])}\n",
        chain])
    body = f"step\n  repeat {draw.randint(20, 80)}\n{body}  end\nend\nteardown\n  finalize\n"
    who = draw.randrange(ranks)
    head = HEAD.format(ranks=ranks, seed=seed, alpha=draw.choice([2, 10]), skew=draw.choice([100, 2000])) + f"comm row block={ranks // 2}\n"
    return who, f"slow rank={who} factor={draw.choice([1.2, 1.5, 2])} at=work\n", head, body + "end\n"


def periodic(seed):
    """Time steps of an application, in one or two phases: solver loops whose counts vary, halos, output now and then, other
    collectives at both ends; the rank is slow in one kind of work of one phase."""
    draw = random.Random(seed)
    ranks, phases = number_of_ranks(draw, [2, 2, 3, 4, 8]), draw.choice([1, 1, 2])
    body = "step\n  compute 40ms name=start\n" + "".join("  " + collective(draw, ranks, 3000) for _ in range(draw.randint(2, 6)))
    for phase in range(phases):
        scale_us, parts = draw.choice([30, 200, 1000]) * draw.uniform(0.5, 2), []
        for part in range(draw.randint(2, 4)):
            kind = draw.choice(["solver", "halo", "halo", "plain"])
            work = f"compute {int(scale_us * draw.uniform(0.5, 3)) + 1}us name=work{phase}{part} jitter={draw.choice([0.5, 2, 5])}%\n"
            last = {"solver": "allreduce 8\n", "plain": collective(draw, ranks, 500),
                    "halo": f"halo {draw.choice([64, 4096, 50000])}{draw.choice(['', ' handshake'])}\n"}[kind]
            parts.append((kind, work, last))
        every, output = draw.choice([7, 10, 25]), collective(draw, ranks, 2000)
        for step in range(draw.choice([30, 60, 120])):
            for kind, work, last in parts:
                inner = f"    {work}    {last}"
                body += f"  repeat {draw.randint(3, 12)}\n{inner}  end\n" if kind == "solver" else inner
            if step % every == every - 1:
                body += f"  compute {int(scale_us)}us name=output\n  {output}"
    body += "".join("  " + collective(draw, ranks, 3000) for _ in range(draw.randint(0, 7))) + "end\nteardown\n  finalize\n"
    who, slow_phase = draw.randrange(ranks), draw.randrange(phases)
    head = HEAD.format(ranks=ranks, seed=seed, alpha=draw.choice([2, 10]), skew=draw.choice([100, 2000]))
    factor, whole = draw.choice([1.2, 1.5, 2]), draw.random() < 0.5
    slow = "".join(f"slow rank={who} factor={factor} at=work{slow_phase}{part}\n" for part in range(4 if whole else 1))
    return who, slow, head, body + "end\n"


def launched(place, *before):
    done = subprocess.run([*before, "mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "2", BUILD / "tests/unmarked_app", place / "run.trace"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split()[0])


def ends_ns(run):
    """When each rank's last call ended, on clocks that are the same in all simulated runs of a seed."""
    import h5py  # Here: bench/rules needs the programs only.
    ends = []
    for path in sorted((run / "ranks").glob("*.h5")):
        with h5py.File(path) as file:
            ends.append(max(file["mpi_calls/begin_ns"][:] + file["mpi_calls/duration_ns"][:]))
    return ends


def analysed(place, text):
    """The analysis, and when the program ended (by rank); live it runs once more for that, not recorded."""
    (place / "run.trace").write_text(text)
    if LIVE:
        ends = [1e9 * launched(place)]
        launched(place, BUILD / "lockstep", "run", "--after", "none", "-o", place / "run", "--")
    else:
        subprocess.run([BUILD / "make_run", place / "run.trace", place / "run"], check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([BUILD / "lockstep", "analyze", place / "run", "--json", place / "run.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if not LIVE:
        ends = ends_ns(place / "run")
    shutil.rmtree(place / "run")
    analysis = json.loads((place / "run.json").read_text())
    return analysis, ends


def length_ns(analysis):
    return max(row["span_ns"] for row in analysis["ranks"])


def naming(analysis):
    """The finding that names ranks: stragglers, or the one rank that is mostly waited for."""
    named = [row for row in analysis["findings"] if row["id"] in ("straggler.arrival", "wait.turns") and row["rank"] is not None]
    return named[0] if named else None


def named_in(analysis):
    stragglers = [row["rank"] for row in analysis["stragglers"]]
    return stragglers or ([naming(analysis)["rank"]] if naming(analysis) else [])


def price_ns(analysis):
    """In all of the recording."""
    finding = naming(analysis)
    if finding["saves_share"] is not None:
        return finding["saves_share"] * sum(row["span_ns"] for row in analysis["ranks"]) / len(analysis["ranks"])
    return finding["saves_ns_per_step"] * analysis["run"]["steps"]


def bound_ns(analysis):
    """The longest waiting of any rank; for messages it is not split from what they take."""
    return max(row["exposed_wait_ns"] + row["exposed_unsplit_ns"] + row["idle_ns"] for row in analysis["ranks"])


KINDS = (even, rare, passed, unseen, periodic)


def main(first, last):
    failed = []
    for kind in [kind for kind in KINDS if not LIVE or kind is not unseen]:
        slowed = named = priced = healthy = accused = 0
        for seed in range(first, last):
            who, slow, head, body = kind(seed)
            with tempfile.TemporaryDirectory() as place:
                place = pathlib.Path(place)
                (without, without_ends), (having, having_ends) = analysed(place, head + body), analysed(place, head + slow + body)
            healthy += 1
            # In rare programs another rank is late by little all the time: it may be named, nobody else.
            others = named_in(without)
            if others and (kind is not rare or others != [(who + 1) % len(without["ranks"])]):
                accused += 1
                print(f"{kind.__name__} {seed}: healthy, and named {others}")
            gain_ns = max(late - early for late, early in zip(having_ends, without_ends))
            if gain_ns < 0.02 * length_ns(having):
                continue
            slowed += 1
            found = named_in(having)
            if found != [who]:
                print(f"{kind.__name__} {seed}: rank {who} costs {gain_ns / 1e6:.1f} ms, named {found}: {having['findings'][:1] and having['findings'][0]['headline']}")
                continue
            named += 1
            if not naming(having)["explain"]["rows"]:
                failed.append(f"{kind.__name__} {seed}: no rows behind the finding")
            if abs(price_ns(having) - gain_ns) <= 0.2 * gain_ns:
                priced += 1
            else:
                print(f"{kind.__name__} {seed}: rank {who} costs {gain_ns / 1e6:.1f} ms, price {price_ns(having) / 1e6:.1f} ms")
            if price_ns(having) > bound_ns(having) + 0.005 * length_ns(having):
                failed.append(f"{kind.__name__} {seed}: price {price_ns(having) / 1e6:.2f} ms, and no rank waits more than {bound_ns(having) / 1e6:.2f}")
        print(f"{kind.__name__}: {named} of {slowed} named, {priced} priced within 20 %, {accused} of {healthy} healthy ones accused")
        if named < 0.95 * slowed or accused > 0.01 * healthy:
            failed.append(f"{kind.__name__}: named or accused")
        if priced < 0.95 * named:
            failed.append(f"{kind.__name__}: priced")
    print(*failed, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    sys.exit(main(int(sys.argv[2]), int(sys.argv[3])))
