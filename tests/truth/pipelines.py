#!/usr/bin/env python3
"""Pipelines of few steps: the late rank is named with the confidence that so few steps give, and nobody in healthy ones.

  pipelines.py BUILD [--healthy 50] [--print]
"""
import argparse
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import straggler_cases as cases

STEPS = (3, 5, 10)


def text(steps, seed, kind, extra="", warmup=1):
    stages, width = (4, 1) if kind == "plain" else (4, 4) if kind == "tensor" else (3, 2) if kind == "gpu" else (8, 1)
    groups = f"comm tp block={width}\ncomm dp block={width}\n" if width > 1 else ""
    tensor = " tensor=tp tensorbytes=1MiB data=dp databytes=20MiB" if width > 1 else ""
    gpu = kind == "gpu"
    return (f"ranks {stages * width}\nsteps {steps + warmup}\nwarmup {warmup}\nseed {seed}\nnetwork alpha=20us bandwidth=20GB/s\n"
            f"jitter {(0.3, 1, 3)[seed % 3]}%\n{'gpu' if gpu else ''}\n{groups}{extra}step\n"
            f"  pipeline stages={stages} microbatches={2 * stages} forward=2ms backward=4ms bytes=4MiB{tensor}\n"
            f"  {'kernel 1ms name=adam' if gpu else 'optimizer 1ms'}\nend\n")


KINDS = ("plain", "tensor", "gpu", "deep")


def late_rank(kind, seed):
    ranks = {"plain": 4, "tensor": 16, "gpu": 6, "deep": 8}[kind]
    return (5 * seed + 2) % ranks


def sentences(answer):
    return [f["headline"] for f in answer["findings"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--healthy", type=int, default=50, help="runs of each number of steps")
    parser.add_argument("--print", action="store_true")
    options = parser.parse_args()
    chosen = [(f"{kind}, {steps} steps, rank {late_rank(kind, seed)} 1.3x, seed {seed}", steps, late_rank(kind, seed),
               text(steps, seed, kind, f"slow rank={late_rank(kind, seed)} factor=1.3\n"))
              for steps in STEPS for kind in KINDS for seed in (1, 2, 3)]
    chosen += [(f"{KINDS[seed % 4]}, {steps} steps, healthy, seed {seed}", steps, None, text(steps, 100 + seed, KINDS[seed % 4]))
               for steps in STEPS for seed in range(options.healthy)]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as scratch:
        answers = cases.run_all(options.build + "/straggler_runs", scratch, [c[-1] for c in chosen])
    failed = 0
    for (name, steps, rank, _), answer in zip(chosen, answers):
        bad = []
        if "error" in answer:
            bad = [answer["error"]]
        else:
            named = [s["rank"] for s in answer["stragglers"]]
            # Where a run is too short for a straggler, the sentence says that it may be chance.
            said = [line for line in sentences(answer) if "by chance: " in line]
            if rank is None:
                bad += [f"names rank {r}: {answer['verdict']}" for r in named] + [f"says: {line}" for line in said]
            elif steps >= 5:
                bad += [] if named == [rank] else [f"names {named}: {answer['verdict']}"]
            else:
                bad += [] if len(said) == 1 and f"for rank {rank}: " in said[0] else [f"says {said}: {answer['verdict']}"]
                bad += [f"names rank {r} as if it were sure" for r in named]
        failed += bool(bad)
        for line in bad + ([answer.get("verdict")] + sentences(answer) if options.print else []):
            print(f"{name}: {line}")
    print(f"{len(chosen) - failed} of {len(chosen)} right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
