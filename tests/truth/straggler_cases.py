"""Runs whose stragglers are known because they were put in, as make_run descriptions, and what is to be said of them.

A case is made of the healthy job, which ranks are disturbed, how much, when and by what. The price that must come out
is the difference to the same seed without the disturbance.
"""
import json
import os
import random
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
MEASURED = os.path.join(os.path.dirname(HERE), "make_run", "measured")
WARMUP = 2

# Time of one step's own work, ns: what a slowdown of 1.3 multiplies.
CPU_WORK_NS = 33_000_000
CPU_BODY = """
step
  input 1ms
  forward 10ms
  backward 20ms buckets=1MiB,4MiB,4MiB
  waitall
  optimizer 2ms
end
"""
GPU_WORK_NS = 32_400_000
GPU_BODY = """
step
  input 300us
  kernel 1ms count=10 name=gemm_forward
  kernel 500us count=4 name=attention_forward
  kernel 1ms count=6 name=gemm_backward
  nccl allreduce 4MiB
  kernel 1ms count=6 name=gemm_backward
  nccl allreduce 4MiB
  kernel 500us count=8 name=attention_backward
  nccl allreduce 2MiB
  join
  kernel 400us count=5 name=adam
  host 200us
  sync
end
"""


def header(ranks, steps, seed, noise, gpu=False, extra=""):
    """noise: a fraction of normal jitter, or (file, scale) or (file, scale, block) of measured work."""
    text = f"ranks {ranks}\nnodes {max(1, ranks // 8)}\nsteps {steps + WARMUP}\nwarmup {WARMUP}\nseed {seed}\n"
    text += "network alpha=20us bandwidth=10GB/s skew=2us\n"
    if gpu:
        text += "gpu\nsensors period=50ms\n"
    else:
        text += "progress test\npoll 500us\n"
    if isinstance(noise, tuple):
        text += f"resample {os.path.join(MEASURED, noise[0])} scale={noise[1]} block={noise[2] if len(noise) > 2 else 16}\njitter 0.2%\n"
    else:
        text += f"jitter {noise * 100:.4f}%\n"
    return text + extra


def steps_of(kind, steps, seed):
    """The steps in which a disturbance acts, and from which one on it does if it drifts."""
    first, last = WARMUP, WARMUP + steps - 1
    if kind == "persistent":
        return [f"steps={first}-{last}"], None
    if kind == "drifting":
        return [f"steps={first + steps // 2}-{last}"], first + steps // 2
    if kind == "transient":  # A tenth of them, scattered.
        chosen = sorted(random.Random(seed).sample(range(first, last + 1), max(1, steps // 10)))
        return [f"steps={s}" for s in chosen], None
    if kind == "periodic":  # A tenth of them, each tenth.
        return [f"steps={first + 7}-{last} every=10"], None
    raise ValueError(kind)


def disturbance(cause, rank, factor, when, gpu):
    """Lines that make the rank's step `factor` times its healthy work."""
    by = int((factor - 1) * (GPU_WORK_NS if gpu else CPU_WORK_NS))
    lines = []
    for steps in when:
        if cause == "compute":
            lines.append(f"slow rank={rank} factor={factor} {steps}")
        elif cause == "input":
            lines.append(f"late rank={rank} by={by} at=input {steps}")
        elif cause == "stall":
            lines.append(f"stall rank={rank} by={by} at={'host' if gpu else 'forward'} {steps}")
        elif cause == "starved":
            lines.append(f"starve rank={rank} factor={factor} {steps}")
        elif cause == "clock":  # The sensors say it too.
            lines.append(f"slow rank={rank} factor={factor} {steps}\nthrottle rank={rank} clock={int(1980 / factor)}")
        elif cause == "kernel":  # All of the time in one class of kernels.
            of = 1 + (factor - 1) / (22e6 / GPU_WORK_NS)  # gemm is 22 ms of it.
            lines += [f"slow rank={rank} factor={of:.4f} at={name} {steps}" for name in ("gemm_forward", "gemm_backward")]
        elif cause == "host":
            lines.append(f"late rank={rank} by={by} at=host {steps}")
        else:
            raise ValueError(cause)
    return "\n".join(lines) + "\n"


class Case:
    """One run with a disturbance (or none) and its healthy twin."""

    def __init__(self, name, text, twin=None, ranks=(), kind=None, causes=None, onset=None, rank_count=0,
                 unresolved=False):
        self.unresolved = unresolved  # The report must say that the clocks do not tell.
        self.name, self.text, self.twin = name, text, twin
        self.ranks, self.kind, self.causes, self.onset = tuple(ranks), kind, causes, onset
        self.rank_count = rank_count


CAUSES = {"compute": {"compute"}, "input": {"input"}, "stall": {"waiting", "gc"}, "starved": {"starved"},
          "clock": {"clock"}, "kernel": {"kernel"}, "host": {"host", "gc"}}


def slowed(ranks, factor, kind, cause, count=1, steps=60, seed=1, noise=0.003, gpu=False):
    generator = random.Random(f"{ranks}{factor}{kind}{cause}{count}{seed}")
    chosen = sorted(generator.sample(range(ranks), count))
    when, onset = steps_of(kind, steps, seed)
    extra = "".join(disturbance(cause, r, factor, when, gpu) for r in chosen)
    body = GPU_BODY if gpu else CPU_BODY
    name = f"{'gpu' if gpu else 'cpu'} {ranks} ranks, {','.join(map(str, chosen))} {factor}x {kind} {cause}"
    return Case(name, header(ranks, steps, seed, noise, gpu, extra) + body, header(ranks, steps, seed, noise, gpu) + body,
                chosen, kind, CAUSES[cause], onset, ranks)


def controls(ranks, steps, seed, noise):
    """Runs in which no rank may be named, with the reason in their names."""
    head = lambda extra="", n=noise: header(ranks, steps, seed, n, extra=extra)
    last = WARMUP + steps - 1
    yield Case(f"{ranks} ranks, healthy with jitter", head(n=0.01) + CPU_BODY)
    yield Case(f"{ranks} ranks, healthy, work of real runs", head(n=("real_work.csv", 0.2)) + CPU_BODY)
    # Tails, not levels: a rank that is 10 % slower for half of a short run is named, and rightly.
    yield Case(f"{ranks} ranks, healthy with heavy tails", head(n=("real_work.csv", 1, 2)) + CPU_BODY)
    yield Case(f"{ranks} ranks, slow network for all",
               head().replace("bandwidth=10GB/s", "bandwidth=500MB/s") + CPU_BODY)
    # Half of the ranks reach the others over a slow link: whoever is in a group with them waits alike.
    yield Case(f"{ranks} ranks, a slow link to one node",
               head(extra="comm across stride=2\n") + CPU_BODY.replace("  waitall", "  waitall\n  allreduce 20MiB comm=across"))
    ring = "\nstep\n  compute 20ms\n  ring 512KiB\n  compute 8ms\n  allreduce 1MiB\nend\n"
    yield Case(f"{ranks} ranks, a slow link of the ring", head(extra=f"link rank={ranks // 2} to={ranks // 2 + 1} by=4ms\n") + ring)
    yield Case(f"{ranks} ranks, all equally slow", head(extra="slow rank=-1 factor=1.3\n") + CPU_BODY)
    # Extra work of 3 ms in the shadow of everybody's longer wait for rank-independent communication.
    hidden = "\nstep\n  forward 10ms\n  iallreduce 100MiB as=big\n  compute 4ms name=side\n  wait big\n  optimizer 2ms\nend\n"
    yield Case(f"{ranks} ranks, extra work hidden behind communication",
               head(extra="late rank=1 by=3ms at=side\n").replace("progress test\npoll 500us\n", "progress thread\n") + hidden)
    # Each takes its turn.
    turns = "".join(f"late rank={s % ranks} by=5ms steps={s}\n" for s in range(WARMUP, last + 1))
    yield Case(f"{ranks} ranks, the ranks take turns", head(extra=turns) + CPU_BODY)
    generator = random.Random(seed)
    hiccups = "".join(f"late rank={generator.randrange(ranks)} by=30ms steps={s}\n"
                      for s in generator.sample(range(WARMUP, last + 1), max(2, steps // 15)))
    yield Case(f"{ranks} ranks, single hiccups here and there", head(extra=hiccups) + CPU_BODY)
    yield Case(f"{ranks} ranks, one hiccup of one rank", head(extra=f"late rank=1 by=300ms steps={WARMUP + steps // 3}\n") + CPU_BODY)


def propagated(ranks, steps, seed, noise):
    """Rank r is slow before a ring; its neighbour is late at the collective that follows without doing more itself."""
    r = ranks // 2
    body = "\nstep\n  compute 20ms name=before\n  ring 512KiB\n  compute 8ms\n  allreduce 1MiB\nend\n"
    extra = f"late rank={r} by=4ms at=before\n"
    yield Case(f"{ranks} ranks, rank {r} slow before a ring", header(ranks, steps, seed, noise, extra=extra) + body,
               header(ranks, steps, seed, noise) + body, [r], "persistent", {"compute"}, None, ranks)


def clock_grid(ranks, steps, seed):
    """Rank 2 is late by a known skew at every collective; each rank has a clock of its own, with offset, drift and
    wander, and exchanges whose round trips leave an error that is a multiple of the skew."""
    body = {False: "\nstep\n  forward 20ms\n  allreduce 1MiB\n  optimizer 2ms\nend\n",
            True: "\nstep\n  kernel 5ms count=4 name=gemm\n  nccl allreduce 1MiB\n  join\n  kernel 2ms name=adam\n  sync\nend\n"}
    at = {False: "forward", True: "gemm"}
    skew_ns = 2_000_000
    for gpu in (False, True):
        for ratio, sees in ((0.05, True), (0.15, True), (0.28, True), (0.45, False), (0.7, False), (1.5, False)):
            # Two ranks' errors, one of them the reference's: eps is half of the round trip at least.
            rtt = int(2 * ratio * skew_ns)
            clocks = "".join(f"clock rank={r} offset={(r * 37) % 11 - 5}s drift={(r * 13) % 60 - 30}ppm "
                             f"wander={(r * 7) % 30}us/200s\n" for r in range(1, ranks))
            extra = f"{clocks}bursts period=500ms count=20 rtt={rtt}ns noise=1us\n"
            late = f"late rank=2 by={skew_ns} at={at[gpu]}\n"
            head = header(ranks, steps, seed, 0.001, gpu).replace("sensors period=50ms\n", "") + extra
            name = f"{'gpu' if gpu else 'cpu'} {ranks} ranks, clock error {ratio} of the skew"
            if sees:
                yield Case(name, head + late + body[gpu], head + body[gpu], [2], "persistent", None, None, ranks)
            else:
                yield Case(name, head + late + body[gpu], unresolved=True)


def expected(case, answer, twin):
    """(effect in ns per step, its share of the healthy step) of the disturbance, step by step against the twin: the
    mean, since its onset if it drifts."""
    paired = [a - b for a, b in zip(answer["step_ns"], twin["step_ns"])]
    if case.kind == "drifting":
        paired = paired[len(paired) // 2:]
    effect = statistics.fmean(paired)
    return effect, effect / statistics.fmean(twin["step_ns"])


def judge(case, answer, twin=None):
    """A list of what is wrong; empty if all is right."""
    if "error" in answer:
        return ["error: " + answer["error"]]
    named = sorted(s["rank"] for s in answer["stragglers"])
    if not case.ranks:
        if named:
            return [f"names {named}: {answer['verdict']}"]
        said = " ".join([answer["verdict"]] + answer["remarks"])
        return ["does not say why"] if case.unresolved and "below clock resolution" not in said else []
    effect, share = expected(case, answer, twin)
    wrong = [r for r in named if r not in case.ranks]
    bad = [f"names {wrong} too"] if wrong else []
    missed = [r for r in case.ranks if r not in named]
    if share < 0.02 or (share < 0.03 and missed):
        return bad  # Not worth naming, or on the line: whether it is named or not is right.
    if missed:
        bad.append(f"misses {missed} (costs {share:.1%} of the step)")
        return bad
    for s in answer["stragglers"]:
        if s["rank"] not in case.ranks:
            continue
        kind = "transient" if case.kind == "periodic" else case.kind
        if s["kind"] != kind:
            bad.append(f"rank {s['rank']} is called {s['kind']}")
        if case.causes is not None and s["cause"] not in case.causes:
            bad.append(f"cause {s['cause']}")
        if case.onset is not None and s.get("onset") is not None and abs(s["onset"] - case.onset) > max(2, len(answer["step_ns"]) // 12):
            bad.append(f"onset {s['onset']} not {case.onset}")
    price = next((f.get("saves_ns") for f in answer["findings"] if f["id"] == "straggler.arrival"), None)
    if price is None:
        bad.append("no price")
    else:
        low, high = answer["stragglers"][0]["low_ns"], answer["stragglers"][0]["high_ns"]
        inside = len(case.ranks) == 1 and low <= effect <= high
        if abs(price - effect) > 0.1 * effect and not inside:
            bad.append(f"price {price / 1e6:.2f} ms, effect {effect / 1e6:.2f} ms")
    return bad


def run_all(program, scratch, texts, jobs=1):
    """Answers to the texts, in order; equal ones are run once."""
    unique = list(dict.fromkeys(texts))
    parts = [unique[i::jobs] for i in range(jobs)]
    running = []
    for part in parts:
        process = subprocess.Popen([program, scratch], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append((process, part))
    answers = {}
    import threading

    def feed(process, part):
        for text in part:
            process.stdin.write(json.dumps({"text": text}) + "\n")
        process.stdin.close()

    threads = [threading.Thread(target=feed, args=each) for each in running]
    for thread in threads:
        thread.start()
    for process, part in running:
        for text, line in zip(part, process.stdout):
            answers[text] = json.loads(line)
        process.wait()
    return [answers.get(text, {"error": "the program ended early"}) for text in texts]
