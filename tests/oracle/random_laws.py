#!/usr/bin/env python3
"""Random runs of every kind that make_run knows, whole and damaged: does what is said of them obey the laws (laws.py)?

  random_laws.py BUILD SEED[-SEED] ...

Runs of 1 to 12 ranks and 1 to 40 steps, with and without GPUs, with late ranks, clocks apart, ranks that are missing, died
or were cut off, rows that are gone, slow links. What is replayed must be what was recorded where nothing is missing.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../truth"))
import laws  # noqa: E402
import random_bodies  # noqa: E402

# The replay is of what was recorded, not of what the interference of a busy network made of it.
MOST_SELF_ERROR = 0.05


def head(choose, gpu, ranks, steps, seed):
    lines = ["gpu"] if gpu else ["progress " + choose.choice(["none", "test", "thread"])]
    if not gpu and choose.random() < 0.2:
        lines.append("gloo")
    return lines + [f"ranks {ranks}", f"nodes {choose.choice([n for n in (1, 2, 3) if n <= ranks])}", f"steps {steps}",
                    f"warmup {choose.choice([0, 0, min(2, steps)])}", f"seed {seed}",
                    f"jitter {choose.choice(['0', '0.3%', '5%', '30%'])}",
                    f"network alpha={choose.choice(['5us', '30us', '1ms'])} bandwidth={choose.choice(['50MB/s', '2GB/s'])} "
                    f"skew={choose.choice(['0', '3us', '2ms'])}"]


def disturbances(choose, ranks, steps):
    lines = []
    for _ in range(choose.choice([0, 1, 1, 2, 3])):
        rank = choose.randrange(ranks)
        when = choose.choice(["", f" steps={choose.randrange(steps)}-{steps}", f" every={choose.choice([2, 5])}"])
        lines.append(choose.choice([f"slow rank={rank} factor={choose.choice([1.1, 2, 10])}{when}",
                                    f"late rank={rank} by={choose.choice(['1ms', '30ms', '1s'])}{when}",
                                    f"stall rank={rank} by=20ms{when}", f"starve rank={rank} factor=2{when}"]))
    if choose.random() < 0.4:
        lines.append(f"clock rank={choose.randrange(ranks)} offset={choose.choice(['5s', '-3ms', '1000s'])} "
                     f"drift={choose.choice(['20ppm', '-50ppm'])}")
    if choose.random() < 0.2 and ranks > 1:
        rank = choose.randrange(ranks)
        lines.append(f"link rank={rank} to={(rank + 1) % ranks} bandwidth=20MB/s")
    return lines


def damage(choose, ranks, steps):
    lines = []
    if choose.random() < 0.15 and ranks > 1:
        lines.append(f"missing rank={choose.randrange(ranks)}")
    if choose.random() < 0.15 and steps > 2 and ranks > 1:
        lines.append(f"died rank={choose.randrange(ranks)} step={choose.randrange(1, steps)} signal=9")
    if choose.random() < 0.1 and steps > 2:
        lines.append(f"cut rank={choose.randrange(ranks)} step={choose.randrange(1, steps)}")
    if choose.random() < 0.1:
        lines.append(f"delete rank={choose.randrange(ranks)} table=collectives row={choose.randrange(4)} count={choose.randrange(1, 4)}")
    return lines


def text_of(seed):
    """(text, whether something is missing)"""
    choose = random.Random(seed)
    gpu, ranks, steps = choose.random() < 0.4, choose.choice([1, 2, 2, 3, 4, 8, 12]), choose.choice([1, 2, 3, 5, 8, 22, 40])
    lines = head(choose, gpu, ranks, steps, seed)
    if choose.random() < 0.1:
        lines.append("marks off")
    if ranks > 2 and ranks % 2 == 0:
        lines.append("comm PAIR block=2")
    body = (random_bodies.on_gpus if gpu else random_bodies.on_cpus)(choose, ranks if ranks % 2 == 0 else 2)
    if not gpu and choose.random() < 0.2:
        body.append(choose.choice(["other 3ms", "io 3ms", "rma 2ms"]))
    lines += disturbances(choose, ranks, steps)
    damaged = damage(choose, ranks, steps)
    if not gpu and choose.random() < 0.3:
        damaged += ["setup", "  bcast 64MiB root=0", "end"]
    text = "\n".join(lines + damaged) + "\nstep\n" + "\n".join("  " + line for line in body) + "\nend\n"
    return text, any(line.split()[0] in ("missing", "died", "cut", "delete") for line in damaged)


def broken(build, place, seed):
    text, damaged = text_of(seed)
    path = os.path.join(place, "run")
    with open(path + ".txt", "w") as file:
        file.write(text)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
    for command in ([build + "/make_run", path + ".txt", path], [build + "/lockstep", "analyze", path, "-q", "--json", path + ".json"]):
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode not in (0, 3):
            return [f"{command[0]}: exit {done.returncode}: {done.stderr}"], text
    lines = laws.broken_in(path + ".json")
    with open(path + ".json") as file:
        replay = json.load(file)["replay"]
    if not damaged and replay and replay["skipped"] is None and replay["self_error"] > MOST_SELF_ERROR:
        lines.append(f"replayed {replay['replayed_step_ns']} of {replay['measured_step_ns']}, {replay['self_error']:.3f} off")
    return lines, text


def main():
    build, wrong, count = os.path.abspath(sys.argv[1]), 0, 0
    for word in sys.argv[2:]:
        first, _, last = word.partition("-")
        for seed in range(int(first), int(last or first) + 1):
            count += 1
            with tempfile.TemporaryDirectory(prefix="lockstep-laws-") as place:
                lines, text = broken(build, place, seed)
            if lines:
                wrong += 1
                print(f"seed {seed}:", *lines, text, sep="\n  ")
    print(f"{count} runs, of {wrong} something contradicts itself")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
