"""Random bodies of steps, as lines of make_run's texts: on CPUs, and on GPUs. `choose` is a random.Random."""

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
