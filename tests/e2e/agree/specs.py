"""What the runs are generated from (tests/make_run/README.md)."""

import random

HEAD = "network alpha=20us bandwidth=5GB/s skew=2us\n"

NAMED = {
    "one_rank": "ranks 1\nsteps 12\njitter 1%\nstep\n  forward 3ms\n  backward 6ms\n  optimizer 1ms\nend\n",
    "two_ranks": "ranks 2\nsteps 12\nslow rank=0 factor=1.5\n" + HEAD + "jitter 0.3%\nstep\n  forward 4ms\n  allreduce 2MiB\nend\n",
    "eight_ranks": "ranks 8\nsteps 10\nlate rank=5 by=3ms\n" + HEAD + "jitter 4%\ncomm half block=4\nstep\n  forward 4ms\n"
                   "  backward 8ms buckets=1MiB,2MiB\n  waitall\n  allgather 512KiB comm=half\n  barrier\nend\n",
    "posted": "ranks 4\nsteps 10\nprogress none\n" + HEAD + "jitter 2%\nstep\n  forward 4ms\n  backward 8ms buckets=4MiB,4MiB\n"
              "  waitall\n  optimizer 1ms\nend\n",
    "one_step": "ranks 4\nsteps 1\nlate rank=3 by=2ms\n" + HEAD + "step\n  forward 4ms\n  allreduce 1MiB\n  optimizer 1ms\nend\n",
    "no_steps": "ranks 3\nsteps 1\nmarks off\nlate rank=1 by=2ms\n" + HEAD + "jitter 1%\nstep\n"
                + "".join(f"  compute {i % 7 + 1}ms\n  allreduce {i + 1}KiB\n" for i in range(40)) + "end\n",
    "taking_turns": "ranks 8\nsteps 6\n" + HEAD + "jitter 30%\nstep\n  forward 10ms\n  allreduce 1MiB\n  compute 3ms\n  alltoall 1MiB\nend\n",
    "gpu_one": "ranks 1\nsteps 6\ngpu\njitter 1%\nstep\n  input 300us\n  kernel 2ms count=3\n  copy d2h 1MiB sync\n  host 200us\nend\n",
    "gpu_ddp": "ranks 4\nsteps 8\ngpu\nlate rank=2 by=2ms\nnetwork alpha=20us bandwidth=40GB/s skew=1us\njitter 2%\nstep\n"
               "  input 300us\n  ddp buckets=8MiB,8MiB forward=4ms backward=8ms\n  kernel 500us name=adam count=5\nend\n",
    "gpu_fsdp": "ranks 2\nsteps 6\ngpu\nnetwork alpha=20us bandwidth=40GB/s\njitter 2%\nstep\n"
                "  fsdp units=4 bytes=16MiB forward=4ms backward=8ms\n  sync\nend\n",
    "group_of_one": "ranks 1\nsteps 12\njitter 1%\nstep\n  forward 3ms\n  allreduce 1MiB\nend\n",
    "all_equal": "ranks 12\nsteps 12\n" + HEAD.replace("skew=2us", "") + "step\n  forward 3ms\n  allreduce 1MiB\nend\n",
    "missing_rank": "ranks 6\nsteps 12\nmissing rank=3\nlate rank=5 by=3ms\n" + HEAD + "jitter 1%\nstep\n  forward 9ms\n"
                    "  backward 18ms buckets=1MiB,2MiB\n  waitall\nend\n",
    "two_ranks_bursts": "ranks 2\nsteps 50\nlate rank=1 by=4ms\nlate rank=0 by=30ms steps=7-49 every=10 at=save\n" + HEAD +
                        "jitter 1%\nstep\n  forward 8ms\n  allreduce 2MiB\n  compute 10us name=save\nend\n",
    "gives_nothing": "ranks 4\nsteps 9\n" + HEAD + "jitter 1%\nstep\n  forward 9ms\n  allgather 1MiB empty=2\n  alltoall 1MiB empty=2\n"
                     "  allreduce 0\n  bcast 0\nend\n",
    "gloo": "ranks 6\nsteps 9\ngloo\nlate rank=4 by=2ms\n" + HEAD + "jitter 1%\nstep\n  forward 9ms\n  reduce 8 root=2\n  bcast 2KiB\n"
            "  gather 64\n  allreduce 1MiB\nend\n",
    "input_bound": "ranks 2\nsteps 9\n" + HEAD + "step\n  input 9ms\n  forward 2ms\n  allreduce 1MiB\nend\n",
}
NAMED |= {
    "one_event": "ranks 1\nsteps 1\nstep\n  forward 3ms\nend\n",
    "no_event": "ranks 2\nsteps 3\nstep\n  compute 0\nend\n",
    "hostile_names": "ranks 3\nsteps 9\nlate rank=1 by=3ms\n" + HEAD + "jitter 1%\nstep\n  compute 3ms name=<script>alert(1)</script>\n"
                     "  compute 2ms name=%s%n\n  compute 1ms name=../../\u00e9\U0001f600\n  allreduce 1MiB\nend\n",
}
# Late ranks whose price is another one's as well: in a pipeline nobody waits for them in a collective.
STAGES = "comm dp block=4 stride=2\ncomm tp block=2\n"
NAMED |= {
    "late_stage": "ranks 16\nsteps 14\nnetwork alpha=20us bandwidth=20GB/s\njitter 0.3%\n" + STAGES + "slow rank=9 factor=1.3\nstep\n"
                  "  pipeline stages=4 microbatches=6 forward=2ms backward=4ms bytes=4MiB tensor=tp tensorbytes=1MiB data=dp databytes=50MiB\n"
                  "  optimizer 1ms\nend\n",
    "late_stage_alone": "ranks 4\nsteps 14\nnetwork alpha=20us bandwidth=20GB/s\njitter 0.3%\nslow rank=2 factor=1.3\nstep\n"
                        "  pipeline stages=4 microbatches=6 forward=2ms backward=4ms bytes=4MiB\n  optimizer 1ms\nend\n",
    "two_stragglers": "ranks 8\nsteps 20\nlate rank=2 by=4ms\nslow rank=5 factor=1.4\n" + HEAD + "jitter 1%\nstep\n  forward 9ms\n"
                      "  allreduce 2MiB\n  compute 3ms\n  allreduce 1MiB\nend\n",
    "drifting": "ranks 4\nsteps 40\nlate rank=1 by=4ms steps=20-39\n" + HEAD + "jitter 1%\nstep\n  forward 9ms\n  allreduce 2MiB\nend\n",
    "late_ring": "ranks 6\nsteps 20\nslow rank=3 factor=1.3\n" + HEAD + "jitter 1%\nstep\n  compute 6ms\n  ring 2MiB\n  compute 3ms\n  halo 1MiB\nend\n",
}
# Messages and reductions of a tensor-parallel group are on streams of their own, several of one name side by side.
NAMED["gpu_stages"] = NAMED["late_stage"].replace("ranks 16\nsteps 14", "ranks 8\nsteps 6\ngpu").replace("block=4 stride=2", "block=2").replace(
    "stages=4 microbatches=6", "stages=4 microbatches=8").replace("slow rank=9", "slow rank=5").replace("  optimizer 1ms", "  kernel 1ms name=adam")
KINETO = {name: NAMED[name] for name in ("gpu_one", "gpu_ddp", "gpu_fsdp", "gpu_stages")}
KINETO["gpu_two_steps"] = NAMED["gpu_ddp"].replace("steps 8", "steps 2")

# Two runs of one job: something became slower, faster, another number of steps or ranks, or nothing changed.
PAIRS = {
    "slower": (NAMED["eight_ranks"], NAMED["eight_ranks"].replace("by=3ms", "by=8ms")),
    "faster": (NAMED["two_ranks"], NAMED["two_ranks"].replace("factor=1.5", "factor=1.1")),
    "same": (NAMED["posted"], NAMED["posted"].replace("ranks 4", "ranks 4\nseed 7")),
    "input": (NAMED["input_bound"], NAMED["input_bound"].replace("input 9ms", "input 6us")),
    "few_steps": (NAMED["eight_ranks"].replace("steps 10", "steps 3"), NAMED["eight_ranks"].replace("steps 10", "steps 30")),
    "other_ranks": (NAMED["all_equal"], NAMED["all_equal"].replace("ranks 12", "ranks 6")),
    "no_steps": (NAMED["no_steps"], NAMED["no_steps"].replace("by=2ms", "by=4ms")),
    "missing_rank": (NAMED["missing_rank"], NAMED["missing_rank"].replace("missing rank=3\n", "")),
    "buckets": (NAMED["posted"], NAMED["posted"].replace("4MiB,4MiB", "1MiB,1MiB,6MiB")),
    "gpu": (NAMED["gpu_ddp"], NAMED["gpu_ddp"].replace("kernel 500us", "kernel 900us").replace("forward=4ms", "forward=6ms")),
    "cpu_gpu": (NAMED["one_rank"], NAMED["gpu_one"]),
}


def pipeline(seed):
    """A GPU pipeline of random depth, schedule and groups; a step may wait for one rank of another."""
    r = random.Random(seed)
    stages, width = r.choice([2, 3, 4]), r.choice([1, 2, 4])
    tensor = " tensor=tp tensorbytes=900KiB" if width > 1 and r.random() < 0.7 else ""
    data = " data=dp databytes=9MiB" if width > 1 and r.random() < 0.5 else ""
    late = r.choice(["", f"late rank={r.randrange(stages * width)} by={r.randint(5, 60)}ms steps=3\n"])
    return (f"ranks {stages * width}\nsteps {r.choice([2, 5, 7])}\ngpu\nseed {seed}\nnetwork alpha={r.randint(5, 40)}us bandwidth={r.choice([2, 20])}GB/s\n"
            f"jitter {r.choice([0, 1, 5])}%\ncomm tp block={width}\ncomm dp block={width}\n{late}step\n  pipeline stages={stages} microbatches={r.randint(1, 9)} "
            f"forward={r.randint(100, 2000)}us backward={r.randint(100, 4000)}us bytes={r.choice(['64KiB', '4MiB', '40MiB'])}{tensor}{data} layers={r.choice([1, 4])}\n"
            f"  kernel {r.randint(50, 900)}us name=adam\n  {r.choice(['sync', 'join', 'copy d2h 1MiB sync'])}\nend\n")


def mixture(seed, gpu=None):
    """A job of random size, work, communication and disturbances."""
    r = random.Random(seed)
    gpu, ranks = r.random() < 0.5 if gpu is None else gpu, r.choice([1, 2, 2, 4, 8])
    lines = [f"ranks {ranks}", f"steps {r.choice([1, 2, 5, 9, 14])}", f"warmup {r.choice([0, 0, 1])}", f"seed {seed}",
             f"network alpha={r.randint(5, 40)}us bandwidth={r.choice([2, 5, 40])}GB/s skew={r.randint(0, 3)}us",
             f"jitter {r.choice([0, 1, 5, 20])}%"]
    if gpu:
        lines.append("gpu")
    if r.random() < 0.2:
        lines.append("marks off")
    if ranks > 1 and r.random() < 0.6:
        lines.append(f"late rank={r.randrange(ranks)} by={r.randint(1, 6)}ms")
    if ranks > 2 and r.random() < 0.3:
        lines.append(f"slow rank={r.randrange(ranks)} factor=1.{r.randint(1, 9)} steps=2-4")
    if r.random() < 0.3:
        lines += [f"clock rank={ranks - 1} offset=3s drift=20ppm"]
    if ranks > 2:
        lines.append("comm pair block=2")
    lines.append("step")
    for i in range(r.randint(2, 7)):
        group = " comm=pair" if ranks > 2 and r.random() < 0.3 else ""
        kind, size = r.choice(["allreduce", "allgather", "reducescatter", "alltoall"]), f"{r.choice([1, 64, 900])}KiB"
        if gpu:
            lines.append(r.choice([f"  kernel {r.randint(20, 3000)}us count={r.randint(1, 5)}", f"  host {r.randint(10, 900)}us",
                                   f"  nccl {kind} {size}{group}\n  join", f"  input {r.randint(50, 900)}us",
                                   f"  copy {r.choice(['h2d', 'd2h', 'd2d'])} {size} {r.choice(['', 'sync'])}"]))
        else:
            lines.append(r.choice([f"  compute {r.randint(20, 4000)}us name=part{i}", f"  forward {r.randint(100, 4000)}us", f"  {kind} {size}{group}",
                                   f"  barrier\n  input {r.randint(50, 2000)}us", f"  i{kind} {size} as=op{i}\n  compute 900us\n  wait op{i}"]))
    # There is work at least, and on a GPU a kernel.
    lines.append("  kernel 700us" if gpu else "  optimizer 700us")
    return "\n".join(lines + ["end", ""])
