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

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import random_bodies  # noqa: E402

BUILD = sys.argv[1]
ENV = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")} | {"NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
# Worth naming is 2 % of the step; what is about as much may be named or not.
SURELY_NAMED = 0.04
# Of the step, or of the loss.
PRICE_OFF_STEP, PRICE_OFF = 0.02, 0.15


def job(seed):
    """(what was done to whom, text without it, the line that does it, the rank)"""
    choose = random.Random(seed)
    gpu, ranks = choose.random() < 0.5, choose.choice([2, 4, 8])
    head = ["gpu"] if gpu else ["progress " + choose.choice(["none", "test", "thread"])]
    head += [f"ranks {ranks}", f"nodes {choose.choice([1, 2])}", "steps 22", "warmup 2", f"seed {seed}", "jitter 0.3%",
             "network alpha=30us bandwidth=2GB/s"]
    if ranks > 2:
        head.append("comm PAIR block=2")
    body = random_bodies.on_gpus(choose, ranks) if gpu else random_bodies.on_cpus(choose, ranks)
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
    step = after["summary"]["step_ns_mean"]
    loss = step - before["summary"]["step_ns_mean"]
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
