"""Three ranks of torch.multiprocessing.spawn that record different steps: windows_job.py profile|hand|late|command

Each prints what it wanted to be recorded ("wanted": steps whose middle is, "whole": steps from begin to end) and in the
middle of which steps lockstep.recording() said so ("seen").
"""

import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import lockstep

RANKS, STEPS = 3, 10
BY_HAND = {0: (0, 4), 1: (2, 7), 2: (3, 9)}  # Rank -> first step that is recorded, first that is not.


def wait_for(path):
    until = time.monotonic() + 60
    while not os.path.exists(path):
        assert time.monotonic() < until, path
        time.sleep(0.01)


def work(step, seen):
    with lockstep.range("work %d" % step):
        if lockstep.recording():
            seen.append(step)
        dist.all_reduce(torch.ones(4))
        time.sleep(0.002)


def by_profile(rank, seen):
    with lockstep.profile(schedule=lockstep.schedule(wait=rank + 1, warmup=0, active=3, repeat=1)) as p:
        for step in range(STEPS):
            work(step, seen)
            p.step()
    return list(range(rank + 1, rank + 4))


def by_hand(rank, seen):
    on, off = BY_HAND[rank]
    lockstep.stop()
    for step in range(STEPS):
        if step == off:
            lockstep.step_end()
            lockstep.stop()
        if step == on:
            lockstep.start()
        lockstep.step()
        work(step, seen)
    lockstep.step_end()
    return list(range(on, off))


def by_command(rank, seen):
    for step in range(STEPS):
        lockstep.step()
        work(step, seen)
        time.sleep(0.005 * rank)
    lockstep.step_end()
    return list(range(3, 6))


def late(rank, seen, place):
    """All steps of rank 2 are recorded, although the others have switched recording off long before its first."""
    if rank == 2:
        for other in (0, 1):
            wait_for("%s/done-%d" % (place, other))
    for step in range(STEPS):
        lockstep.step()
        with lockstep.range("work %d" % step):
            if lockstep.recording():
                seen.append(step)
        if rank < 2 and step == 3 + rank:
            lockstep.step_end()
            lockstep.stop()
    lockstep.step_end()
    if rank < 2:
        open("%s/done-%d" % (place, rank), "w").close()
        return list(range(4 + rank))
    return list(range(STEPS))


def rank_of(rank, how, place):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://%s/meet" % place, rank=rank, world_size=RANKS)
    seen = []
    if how == "late":
        wanted = late(rank, seen, place)
    else:
        wanted = {"profile": by_profile, "hand": by_hand, "command": by_command}[how](rank, seen)
    os.write(1, (json.dumps({"rank": rank, "wanted": wanted, "whole": wanted, "seen": seen}) + "\n").encode())
    dist.barrier()
    time.sleep(0.3)  # Gloo's threads let go of their last work, for which they need the interpreter (tests/torch_abort.py).
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as meet:
        torch.multiprocessing.spawn(rank_of, (sys.argv[1], meet), RANKS)
