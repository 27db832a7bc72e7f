"""Random jobs of which one rank is slowed: is it named, nobody else, and at the price that the job without it shows?

  random_twins.py BUILD [FIRST [LAST]]

Each job is made twice, with and without the rank that is late. Bodies are random: blocking and posted collectives,
rooted ones, sub-communicators, messages, exchanges with neighbours, kernels on streams, waits for streams and devices.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

BUILD = sys.argv[1]
ENV = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")} | {"NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
# Worth naming is 2 % of the step; what is about as much may be named or not.
SURELY_NAMED = 0.04
# Of the step, or of the loss.
PRICE_OFF_STEP, PRICE_OFF = 0.02, 0.15
MEET = ("allreduce", "allgather", "reducescatter", "alltoall", "iallreduce", "barrier", "ring", "halo", "backward")


def on_cpus(choose, ranks):
    lines, posted = [], False
    if choose.random() < 0.6:
        lines.append(f"input {choose.choice([1, 2, 5])}ms")
    lines.append(f"forward {choose.choice([5, 10, 20])}ms")
    for _ in range(choose.randint(1, 5)):
        size = choose.choice(["1KiB", "64KiB", "1MiB", "4MiB"])
        kind = choose.choice(["split", "split", "rooted", "pair", "ring", "halo", "posted", "posted", "barrier", "nothing"])
        if kind == "split":
            lines.append(f"{choose.choice(['allreduce', 'allgather', 'reducescatter', 'alltoall'])} {size}")
        elif kind == "rooted":
            lines.append(f"{choose.choice(['bcast', 'reduce', 'gather', 'scatter'])} {size} root={choose.randrange(ranks)}")
        elif kind == "pair" and ranks > 2:
            lines.append(f"allreduce {size} comm=PAIR")
        elif kind in ("ring", "halo"):
            lines.append(f"{kind} {size}")
        elif kind == "posted":
            lines.append(f"iallreduce {size}")
            posted = True
        elif kind == "barrier":
            lines.append("barrier")
        lines.append(f"compute {choose.choice([2, 4, 8])}ms")
    if posted:
        lines.append("waitall")
    if choose.random() < 0.5:
        sizes = ",".join(choose.choice(["256KiB", "1MiB", "2MiB"]) for _ in range(choose.randint(1, 6)))
        lines += [f"backward {choose.choice([8, 16])}ms buckets={sizes}", "waitall"]
    # Ranks that never meet wait for nobody.
    if not any(line.split()[0] in MEET for line in lines):
        lines.append("allreduce 64KiB")
    return lines + ["optimizer 1ms"]


def on_gpus(choose, ranks):
    lines = []
    if choose.random() < 0.6:
        lines.append(f"input {choose.choice([1, 2, 5])}ms")
    if choose.random() < 0.5:
        lines.append(f"forward {choose.choice([1, 2])}ms")
    for i in range(choose.randint(1, 5)):
        lines.append(f"kernel {choose.choice([200, 1000, 4000])}us name=k{i} count={choose.choice([1, 4, 10])}")
        size = choose.choice(["64KiB", "1MiB", "16MiB"])
        kind = choose.choice(["nccl"] * 5 + ["pair", "join", "sync", "copy", "host"])
        if kind == "nccl":
            lines.append(f"nccl {choose.choice(['allreduce', 'allgather', 'reducescatter'])} {size}")
        elif kind == "pair" and ranks > 2:
            lines.append(f"nccl allreduce {size} comm=PAIR")
        elif kind == "join":
            lines.append("join")
        elif kind == "sync":
            lines.append(choose.choice(["sync", "sync device"]))
        elif kind == "copy":
            lines.append(f"copy {choose.choice(['h2d', 'd2h'])} 4MiB" + choose.choice(["", " sync"]))
        elif kind == "host":
            lines.append(f"host {choose.choice([1, 3])}ms")
    if not any(line.startswith("nccl") and "comm=" not in line for line in lines):
        lines.append("nccl allreduce 64KiB")
    lines.append("join")
    if choose.random() < 0.6:
        lines.append("kernel 500us name=opt count=4")
    if choose.random() < 0.7:
        lines.append(choose.choice(["sync", "sync device"]))
    return lines + ["optimizer 1ms"]


def job(seed):
    """(what was done to whom, text without it, the line that does it, the rank)"""
    choose = random.Random(seed)
    gpu, ranks = choose.random() < 0.5, choose.choice([2, 4, 8])
    head = ["gpu"] if gpu else ["progress " + choose.choice(["none", "test", "thread"])]
    head += [f"ranks {ranks}", f"nodes {choose.choice([1, 2])}", "steps 22", "warmup 2", f"seed {seed}", "jitter 0.3%",
             "network alpha=30us bandwidth=2GB/s"]
    if ranks > 2:
        head.append("comm PAIR block=2")
    body = on_gpus(choose, ranks) if gpu else on_cpus(choose, ranks)
    rank = choose.randrange(ranks)
    change = choose.choice([f"slow rank={rank} factor={choose.choice([1.1, 1.3, 2])}", f"late rank={rank} by={choose.choice([2, 6])}ms"])
    if any(line.startswith("input") for line in body) and choose.random() < 0.3:
        change = f"late rank={rank} by={choose.choice([3, 8])}ms at=input"
    text = "\n".join(head) + "\n{}step\n" + "\n".join("  " + line for line in body) + "\nend\n"
    return change, text.format(""), text.format(change + "\n"), rank


def analyze(place, name, text):
    path = os.path.join(place, name)
    with open(path + ".run.txt", "w") as file:
        file.write(text)
    for command in ([BUILD + "/make_run", path + ".run.txt", path],
                    [BUILD + "/lockstep", "analyze", path, "-q", "--json", path + ".json"]):
        done = subprocess.run(command, capture_output=True, text=True, env=ENV)
        if done.returncode not in (0, 3):
            raise SystemExit(f"{command}: {done.stderr}\n{text}")
    with open(path + ".json") as file:
        return json.load(file)


def judge(place, seed):
    change, healthy, slowed, rank = job(seed)
    before, after = analyze(place, f"{seed}-healthy", healthy), analyze(place, f"{seed}-slowed", slowed)
    step = after["summary"]["job_step_ns_median"]
    loss = step - before["summary"]["job_step_ns_median"]
    wrong = []
    if before["stragglers"]:
        wrong.append(f"without it {[s['rank'] for s in before['stragglers']]} named")
    named = {s["rank"]: s for s in after["stragglers"]}
    wrong += [f"rank {r} named" for r in named if r != rank]
    if loss > SURELY_NAMED * step and rank not in named:
        wrong.append(f"not named, although {loss / 1e6:.2f} of {step / 1e6:.2f} ms are lost: {after['verdict'][:150]}")
    price = named[rank]["price_ns_per_step"] if rank in named else None
    if price is not None and abs(price - loss) > max(PRICE_OFF_STEP * step, PRICE_OFF * abs(loss)):
        wrong.append(f"{price / 1e6:.2f} ms ({named[rank]['priced_by']}) where {loss / 1e6:.2f} of {step / 1e6:.2f} ms are lost")
    if after["replay"] and after["replay"]["self_error"] > PRICE_OFF_STEP:
        wrong.append(f"the replay is {100 * after['replay']['self_error']:.1f} % off")
    for text in wrong:
        print(f"seed {seed}, {change}: {text}", flush=True)
    return not wrong


def main():
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    last = int(sys.argv[3]) if len(sys.argv) > 3 else 24
    with tempfile.TemporaryDirectory(prefix="lockstep-twins-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as place:
        right = sum(judge(place, seed) for seed in range(first, last + 1))
    print(f"{right} of {last - first + 1} right")
    return right <= last - first


if __name__ == "__main__":
    sys.exit(main())
