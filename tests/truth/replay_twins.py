"""What replay says of a run, against the run that was made with that change.

  replay_twins.py BUILD [CASE...] [--entry NAME]

Every expectation is the job step time of a twin that make_run made: other buckets, no overlap, a network that takes no
time, nobody slow, gathers further ahead. Nothing here knows how the replay works.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import cases

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("build")
parser.add_argument("cases", nargs="*")
parser.add_argument("--entry")
arguments = parser.parse_args()
BUILD = arguments.build
ENV = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")} | {"NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
HEAD = "ranks {ranks}\nsteps 16\nwarmup 2\nseed 5\njitter 0.2%\n"
wrong = []


def check(what, condition, shown=""):
    if not condition:
        wrong.append(what + (f": {shown}" if shown != "" else ""))


def near(what, got, expected, tolerance):
    off = None if got is None else got / expected - 1
    check(what, off is not None and abs(off) <= tolerance,
          f"{got} against {expected}" + ("" if off is None else f", {100 * off:+.2f} %"))


class Place:
    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="lockstep-twins-")
        self.count = 0

    def analyze(self, text, *options):
        self.count += 1
        out = os.path.join(self.directory.name, str(self.count))
        spec = out + ".trace"
        with open(spec, "w") as f:
            f.write(text)
        for command in ([os.path.join(BUILD, "make_run"), spec, out],
                        [os.path.join(BUILD, "lockstep"), "analyze", out, "-q", "--json", out + ".json", *options]):
            done = subprocess.run(command, capture_output=True, text=True, env=ENV)
            if done.returncode not in (0, 3):
                raise SystemExit(f"{command}: {done.stderr}")
        self.run = out
        with open(out + ".json") as f:
            return json.load(f)

    def whatif(self, run, *options):
        done = subprocess.run([os.path.join(BUILD, "lockstep"), "whatif", run, "-q", "--json", "-", *options],
                              capture_output=True, text=True, env=ENV)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)["answers"]


def step(analysis):
    return analysis["summary"]["step_ns_mean"]


DDP = HEAD + """progress {progress}
network alpha={alpha} bandwidth={bandwidth}
{more}
step
  forward 10ms
  backward 24ms buckets={buckets}
  waitall
  optimizer 2ms
end
"""


def ddp(buckets="1MiB,3MiB,4MiB,4MiB,4MiB", alpha="400us", bandwidth="1GB/s", progress="thread", ranks=4, more=""):
    return DDP.format(ranks=ranks, buckets=buckets, alpha=alpha, bandwidth=bandwidth, progress=progress, more=more)


def buckets(place):
    a = place.analyze(ddp())
    b = a["buckets"]
    check("the buckets are recognised", b["sizes"] == [1 << 20, 3 << 20] + [4 << 20] * 3, b["sizes"])
    check("by their sequence", b["recognised_by"] == "sequence")
    near("alpha of the line", b["cost_model"]["alpha_ns"], 400_000, 0.05)
    near("beta of the line", b["cost_model"]["beta_ns_per_byte"], 1.0, 0.02)
    check("self error", a["replay"]["self_error"] < 0.005, a["replay"]["self_error"])
    near("replayed step", a["overlap"]["t_actual_ns"], step(a), 0.005)
    # The curve's point of all in one against the run made that way.
    one = [p for p in b["curve"] if p["one_bucket"]][0]
    near("all in one", one["predicted_step_ns"], step(place.analyze(ddp("16MiB"))), 0.01)
    # A cap of 8 MiB (first one 1 MiB): no measured bucket ends within a quarter behind 9 MiB.
    for point in b["curve"]:
        check(f"cap {point['cap_mb']:g}: inside its interval", point["low_ns"] <= point["predicted_step_ns"] <= point["high_ns"])
    halves = place.analyze(ddp("1MiB,8MiB,7MiB"))
    eight = [p for p in b["curve"] if p["cap_mb"] == 8]
    if eight:
        near("cap of 8 MiB", eight[-1]["predicted_step_ns"], step(halves), 0.01)


GPU_DDP = """ranks 2
steps 16
warmup 2
seed 5
jitter 0.2%
gpu
dispatch 6us
network alpha=50us bandwidth=2GB/s
setup
  allreduce 8
  allreduce 8
  barrier
end
step
  ddp buckets={buckets} forward=10ms backward=24ms layers=48
  kernel 400us name=adam
  sync
end
"""


def recommended(place):
    # Far too many buckets on a slow-to-start network: fewer are better, by much. Two sizes tell its latency.
    many = ["128KiB"] + ["256KiB"] * 63
    slow = dict(alpha="500us", bandwidth="4GB/s")
    a = place.analyze(ddp(",".join(many), **slow))
    b = a["buckets"]
    check("a cap is recommended", b["recommended_cap_mb"] is not None)
    finding = [f for f in a["findings"] if f["id"] == "buckets.cap"]
    check("and is a finding", len(finding) == 1)
    if finding:
        left, sizes = (63 * 256) << 10, [128 << 10]
        while left > 0:
            sizes.append(min(left, int(b["recommended_cap_mb"] * (1 << 20))))
            left -= sizes[-1]
        twin = place.analyze(ddp(",".join(f"{size}B" for size in sizes), **slow))
        gain = step(a) - step(twin)
        check("its price is what the twin gains", abs(finding[0]["saves_ns_per_step"] - gain) < 0.15 * gain,
              f"{finding[0]['saves_ns_per_step']} against {gain}")
    # Few large ones: smaller are faster, and no run has shown how fast those move: the most that there is.
    few = place.analyze(GPU_DDP.format(buckets="8MiB,8MiB"))
    finding = [f for f in few["findings"] if f["id"] == "buckets.cap"]
    check("smaller ones than any are recommended", len(finding) == 1)
    for each in finding:
        gain = step(few) - min(step(place.analyze(GPU_DDP.format(buckets=",".join([f"{16 / n}MiB"] * n)))) for n in (4, 8, 16))
        check("as a bound", each["upper_bound"] and "at most" in each["headline"], each["headline"])
        check("which is one", 0.97 * gain <= each["saves_ns_per_step"] <= 1.3 * gain, f"{each['saves_ns_per_step']} of {gain}")
        check("and comes before what transfers cost in all", few["findings"][0]["id"] == "buckets.cap", few["verdict"])
    # And where buckets are as good as they get nothing is said.
    good = place.analyze(ddp("1MiB,3MiB,4MiB,4MiB,4MiB", alpha="10us", bandwidth="20GB/s"))
    check("nothing to gain: nothing recommended", good["buckets"]["recommended_cap_mb"] is None)
    check("and no finding", not [f for f in good["findings"] if f["id"] == "buckets.cap"])


def overlap(place):
    a = place.analyze(ddp())
    o = a["overlap"]
    near("without overlap", o["t_no_overlap_ns"], step(place.analyze(ddp(progress="none"))), 0.01)
    near("communication free", o["t_free_comm_ns"], step(place.analyze(ddp(alpha="0", bandwidth="1000000GB/s"))), 0.01)
    check("in order", o["t_free_comm_ns"] <= o["t_best_ns"] <= o["t_actual_ns"] <= o["t_no_overlap_ns"], o)
    check("efficiency", 0 <= o["efficiency"] <= 1, o["efficiency"])
    # Blocking reductions: what posting them gains is the run that posts them.
    body = "\n".join("  compute 6ms\n  {i}allreduce 4MiB" for _ in range(4))
    text = HEAD.format(ranks=4) + "progress thread\nnetwork alpha=100us bandwidth=2GB/s\nstep\n  compute 5ms\n" + body + "\n{w}\n  compute 3ms\nend\n"
    place.analyze(text.format(i="", w=""))
    (answer,) = place.whatif(place.run, "--overlap", "on")
    near("overlap on", answer["step_ns"], step(place.analyze(text.format(i="i", w="  waitall"))), 0.01)


def stragglers(place):
    slow = "slow rank=2 factor=1.25"
    a, healthy = place.analyze(ddp(more=slow)), place.analyze(ddp())
    check("named", [s["rank"] for s in a["stragglers"]] == [2])
    saves = a["stragglers"][0]["replayed_saves_ns_per_step"]
    gain = step(a) - step(healthy)
    check("its price", abs(saves - gain) < 0.02 * step(a), f"{saves} against {gain}")
    c = a["counterfactual"]
    worst = max(c["S_w"], key=lambda each: each["slowdown"])
    check("the slowest rank by S_w", worst["rank"] == 2, c)
    check("M_W: it is all of it", c["M_W"] > 0.9, c["M_W"])
    check("compute it is", c["S_t"]["compute"] > 1.1 and c["S_t"]["communication"] < 1.02, c["S_t"])
    check("no stages", c["M_S"] is None)
    check("healthy: S near 1", healthy["counterfactual"]["S"] < 1.02, healthy["counterfactual"]["S"])
    (answer,) = place.whatif(place.run, "--without-rank", "2")
    place.analyze(ddp(more=slow))
    (answer,) = place.whatif(place.run, "--without-stragglers")
    near("without stragglers", answer["step_ns"], step(healthy), 0.02)


RING = HEAD + """network alpha=20us bandwidth=5GB/s
{more}
setup
  barrier
end
step
  compute 20ms
  compute 1ms name=halo
  ring 512KiB
  compute 4ms
  ring 512KiB
  compute 3ms
  allreduce 8
end
"""


def ring(place):
    a = place.analyze(RING.format(ranks=6, more="late rank=1 by=6ms at=halo"))
    d = a["delays"]
    check("the delayed rank is charged most", d and d[0]["rank"] == 1, d[:3])
    check("where it was delayed", d and d[0]["where"] == "halo", d[:2])
    others = sum(row["short_term_ns"] + row["long_term_ns"] for row in d if row["rank"] != 1)
    own = sum(row["short_term_ns"] + row["long_term_ns"] for row in d if row["rank"] == 1)
    check("messengers are not", others < 0.1 * own, f"{others} against {own}")
    check("at once and through others", any(row["rank"] == 1 and row["long_term_ns"] > 0 for row in d))
    near("the replay knows messages", a["replay"]["replayed_step_ns"], step(a), 0.005)
    path = a["critical_path"]
    check("on the critical path", path and path[0]["ns"] > 0)
    total = sum(row["ns"] for row in path)
    near("which is the step", total, step(a), 0.02)
    healthy = place.analyze(RING.format(ranks=6, more=""))
    place.analyze(RING.format(ranks=6, more="late rank=1 by=6ms at=halo"))
    (answer,) = place.whatif(place.run, "--without-rank", "1")
    near("without it", answer["step_ns"], step(healthy), 0.01)


PIPELINE = HEAD + """network alpha=20us bandwidth=20GB/s
comm dp block=2
slow rank=6 factor={factor}
step
  pipeline stages=4 microbatches=6 forward=2ms backward=4ms bytes=1MiB data=dp databytes=8MiB
  optimizer 1ms
end
"""


def pipeline(place):
    a = place.analyze(PIPELINE.format(ranks=8, factor=1.3))
    c = a["counterfactual"]
    near("replayed", a["replay"]["replayed_step_ns"], step(a), 0.01)
    check("the last stage is recognised and slow", c["M_S"] is not None and c["M_S"] > 0.5, c["M_S"])
    check("S", c["S"] > 1.02, c["S"])


FSDP = HEAD + """progress thread
network alpha=50us bandwidth={bandwidth}
step
  fsdp units=6 bytes=8MiB forward=12ms backward=24ms prefetch={prefetch}
  optimizer 500us
end
"""


def fsdp(place):
    bandwidth = "8GB/s"
    off = place.analyze(FSDP.format(ranks=4, prefetch=0, bandwidth=bandwidth))
    run = place.run
    check("units", off["fsdp"] is not None and len(off["fsdp"]["units"]) == 6, off["fsdp"])
    exposed = [unit["gather_exposed_ns"] for unit in off["fsdp"]["units"]]
    check("their all-gathers are exposed", min(exposed) > 1_000_000, exposed)
    finding = [f for f in off["findings"] if f["id"] == "fsdp.prefetch"]
    check("a finding", len(finding) == 1)
    on = place.analyze(FSDP.format(ranks=4, prefetch=1, bandwidth=bandwidth))
    (answer,) = place.whatif(run, "--prefetch", "1")
    # The twin gathers the backward pass's first unit when that begins, the prediction one unit earlier.
    near("with prefetching", answer["step_ns"], step(on), 0.04)
    check("less is exposed then", sum(unit["gather_exposed_ns"] for unit in on["fsdp"]["units"]) < 0.6 * sum(exposed))
    deep = place.analyze(FSDP.format(ranks=4, prefetch=1, bandwidth="200GB/s"))
    check("where all is hidden nothing is said", not [f for f in deep["findings"] if f["id"] == "fsdp.prefetch"])


LARGE = """ranks 2
steps 12
warmup 2
seed 5
jitter 0.2%
{of}
network alpha={alpha} bandwidth=8GB/s
{more}
step
  {body}
  {end}
end
"""
LATENCY_KNOWN = "setup\n  allreduce 8\n  allreduce 8\n  barrier\nend"


def sharded(place, gpu, units=1, mib=48, forward=12, backward=24, alpha="50us", prefetch=1, more="", body=None,
            progress="thread"):
    """-> the step, and the finding that units are too large, if there is one"""
    body = body or (f"fsdp units={units} bytes={int(mib * 1024) // units}KiB forward={forward}ms backward={backward}ms "
                    f"prefetch={prefetch} layers={max(1, 24 // units)}")
    a = place.analyze(LARGE.format(of="gpu\ndispatch 6us" if gpu else f"progress {progress}", alpha=alpha, more=more,
                                   body=body, end="kernel 400us name=adam\n  sync" if gpu else "optimizer 400us"))
    found = [f for f in a["findings"] if f["id"] == "fsdp.units" and "so large" in f["headline"]]
    check("told at most once", len(found) <= 1)
    return step(a), found[0] if found else None


def large_units(place):
    for gpu in (False, True):
        of = "GPUs" if gpu else "MPI"
        for units in (1, 2):
            now, told = sharded(place, gpu, units)
            least = min(sharded(place, gpu, parts)[0] for parts in (12, 24))
            check(f"{of}, {units} of them are too large", told is not None)
            if told:
                check("the price says that it is a bound", told["upper_bound"] and "at most" in told["headline"], told["headline"])
                check("no division gains more, and the best one most of it",
                      now - least <= told["saves_ns_per_step"] <= 1.1 * (now - least), f"{told['saves_ns_per_step']} of {now - least}")
        late, told = sharded(place, gpu, more="slow rank=1 factor=1.3")
        least, _ = sharded(place, gpu, 24, more="slow rank=1 factor=1.3")
        check(f"{of}, beside a late rank it is the same", told and late - least <= told["saves_ns_per_step"] <= 1.1 * (late - least))
        for why, case in {"units of a layer": dict(units=24), "units that hide each other's": dict(units=12),
                          "transfers are latency": dict(mib=1, alpha="1ms"),
                          "a latency that is known": dict(mib=1, alpha="3ms", more=LATENCY_KNOWN),
                          "no work to hide them": dict(forward=0.05, backward=0.1), "little to hide": dict(mib=0.5),
                          "only a rank is late": dict(mib=0.5, more="slow rank=1 factor=1.5"),
                          "the network is busy all the time": dict(units=12, mib=192)}.items():
            _, told = sharded(place, gpu, **case)
            check(f"{of}: nothing is told where it is {why}", told is None, told and told["headline"])
    # Who waits in the call waits for each part; what moves in waits only hides nothing either.
    for what, body in {"blocking": "allgather 48MiB\n  compute 12ms\n  allgather 48MiB\n  compute 24ms\n  reducescatter 48MiB",
                       "in waits": "iallgather 48MiB as=a\n  compute 4ms\n  wait a\n  compute 12ms\n  iallgather 48MiB as=b\n"
                                   "  compute 4ms\n  wait b\n  compute 24ms\n  ireducescatter 48MiB as=c\n  compute 4ms\n"
                                   "  waitall"}.items():
        _, told = sharded(place, False, body=body, progress="none")
        check(f"{what}: nothing is told", told is None, told and told["headline"])


MESSAGES = HEAD + """network alpha={alpha} bandwidth={bandwidth}
step
  compute 10ms
  send 4MiB to=1 as=a on=1:0
  send 4MiB to=-1 as=b on=1:1
  recv a {posted} on=1:1
  recv b {posted} on=1:0
  compute 4ms
  allreduce 8
end
"""


def messages(place):
    # In a receive, and in the wait that completes a posted one, a transfer is the same time.
    twin = step(place.analyze(MESSAGES.format(ranks=2, alpha="0", bandwidth="1000000GB/s", posted="")))
    for posted in ("", "posted"):
        a = place.analyze(MESSAGES.format(ranks=2, alpha="100us", bandwidth="1GB/s", posted=posted))
        near(f"replayed, {posted or 'blocking'}", a["replay"]["replayed_step_ns"], step(a), 0.005)
        near("communication free", a["overlap"]["t_free_comm_ns"], twin, 0.01)
        (answer,) = place.whatif(place.run, "--free-communication")
        check("what is left is work", "work of rank" in answer["limit"], answer["limit"])


def more_ranks(place):
    place.analyze(ddp(ranks=4))
    (answer,) = place.whatif(place.run, "--ranks", "16")
    check("labelled", answer["extrapolated"] and answer["low_ns"] <= answer["step_ns"] <= answer["high_ns"], answer)


NOTHING = HEAD + """network alpha=100us bandwidth=1GB/s
late rank=3 by={by} at=forward
slow rank=3 factor=0.6 at=backward
step
  forward 10ms
  allgather 4MiB empty=3
  backward 24ms
  allreduce 1MiB
end
"""


def nothing(place):
    # Rank 3 comes late to a collective to which it gives nothing, and has less to do then: nobody ever waits for it.
    a = place.analyze(NOTHING.format(ranks=4, by="8ms"))
    run = place.run
    check("self error", a["replay"]["self_error"] < 0.002, a["replay"]["self_error"])
    near("replayed step", a["replay"]["replayed_step_ns"], step(a), 0.005)
    (answer,) = place.whatif(run, "--without-rank", "3")
    check("without it nothing is gained", abs(answer["gain_ns"]) < 0.005 * step(a), answer["gain_ns"])


GLOO = HEAD + """gloo
network alpha=100us bandwidth=1GB/s
{more}
step
  forward 10ms
  {body}
  backward 24ms
  allreduce 1MiB
end
"""


def gloo(place):
    # A rank is late; it and those that wait for it have so much less to do then that nobody loses anything by it.
    # Broadcast: rank 3's data comes through rank 1. Scatter and gather: between the root and each. The one value of the
    # reduce goes from 3 down to 0 and then to the root, and 3 waits for 2 to take it.
    for body, late, held in [("bcast 1MiB root=0", 3, [1]), ("scatter 1MiB root=0", 3, [0]), ("gather 1MiB root=1", 3, [1]),
                             ("reduce 8 root=2", 0, [1, 2])]:
        more = f"late rank={late} by=8ms at=forward" + "".join(f"\nslow rank={r} factor=0.6 at=backward" for r in held + [late])
        a = place.analyze(GLOO.format(ranks=4, body=body, more=more))
        check(f"{body}, rank {late} late: self error", a["replay"]["self_error"] < 0.002, a["replay"]["self_error"])
        (answer,) = place.whatif(place.run, "--without-rank", str(late))
        check("without it nothing is gained", abs(answer["gain_ns"]) < 0.005 * step(a), answer["gain_ns"])
    # Of five whose one value goes from 4 down to 0 and then to the root, 3 does not wait for 0, and 4 for 3 alone.
    for body, late in [("bcast 1MiB root=1", 1), ("bcast 1MiB root=1", 2), ("scatter 1MiB root=2", 2), ("scatter 1MiB root=2", 0),
                       ("gather 1MiB root=3", 3), ("gather 1MiB root=3", 1), ("reduce 8 root=2", 0), ("reduce 8 root=2", 3),
                       ("reduce 1MiB root=2", 4)]:
        text = GLOO.format(ranks=5, body=body, more="{more}")
        healthy = place.analyze(text.format(more=""))
        near(f"{body}: replayed step", healthy["replay"]["replayed_step_ns"], step(healthy), 0.002)
        a = place.analyze(text.format(more=f"late rank={late} by=8ms at=forward"))
        check(f"{body}, rank {late} late: self error", a["replay"]["self_error"] < 0.002, a["replay"]["self_error"])
        (answer,) = place.whatif(place.run, "--without-rank", str(late))
        near(f"{body}, without rank {late}", answer["step_ns"], step(healthy), 0.01)


def named_at_its_price(place, text, slowed, rank):
    healthy = place.analyze(text)
    check("nobody is named without it", healthy["stragglers"] == [], healthy["stragglers"])
    a = place.analyze(slowed + text)
    check("self error", a["replay"]["self_error"] < 0.002, a["replay"]["self_error"])
    check("the rank is named", [s["rank"] for s in a["stragglers"]] == [rank], a["verdict"])
    for straggler in a["stragglers"]:
        near("its price", straggler["price_ns_per_step"], step(a) - step(healthy), 0.03)
    check("and the finding says it", any(f["headline"].startswith(f"Rank {rank} holds") for f in a["findings"]))


# What moves only in waits begins when the last rank waits; until then the other has work to do.
MOVES_IN_WAIT = """progress none
network alpha=30us bandwidth=2GB/s
step
  forward 20ms
  bcast 64KiB root=0
  compute 4ms
  iallreduce 1MiB
  compute 10ms
  waitall
end
"""
# The all-gather is late, what computes beside it is not, and the communication behind it on the same stream is.
QUEUED = """gpu
network alpha=30us bandwidth=2GB/s
step
  kernel 3ms name=first
  nccl allreduce 64KiB
  kernel 10ms name=second
  nccl allgather 16MiB
  kernel 5ms name=third
  nccl allreduce 16MiB
  join
  sync device
end
"""
# The host waits for a stream of which only a wait for the collective's is left.
JOINED = """gpu
network alpha=20us bandwidth=5GB/s
step
  input 1ms
  forward 2ms
  kernel 8ms name=gemm
  nccl allreduce 4MiB
  kernel 2ms name=gemm2
  join
  optimizer 1ms
  sync
end
"""


def hidden(place):
    named_at_its_price(place, HEAD.format(ranks=2) + MOVES_IN_WAIT, "late rank=1 by=6ms\n", 1)
    named_at_its_price(place, HEAD.format(ranks=8) + QUEUED, "slow rank=2 factor=1.3\n", 2)


def joined(place):
    named_at_its_price(place, HEAD.format(ranks=4) + JOINED, "slow rank=1 factor=1.3\n", 1)


# Posted to both neighbours and waited for with one call: transfers as those of blocking messages are.
NEIGHBOURS = HEAD + """network alpha={alpha} bandwidth={bandwidth}
step
  forward 10ms
  halo 1MiB
  compute 4ms
  halo 1MiB
  allreduce 1KiB
end
"""


def neighbours(place):
    a = place.analyze(NEIGHBOURS.format(ranks=4, alpha="30us", bandwidth="200MB/s"))
    run = place.run
    (answer,) = place.whatif(run, "--free-communication")
    fast = place.analyze(NEIGHBOURS.format(ranks=4, alpha="0us", bandwidth="100000GB/s"))
    near("without transfers", answer["step_ns"], step(fast), 0.01)
    finding = [f for f in a["findings"] if f["id"] == "transfer.exposed"]
    check("they are a finding", len(finding) == 1, a["verdict"])
    for each in finding:
        near("its price", each["saves_ns_per_step"], step(a) - step(fast), 0.03)


CASES = [hidden, joined, neighbours, nothing, gloo, buckets, recommended, overlap, stragglers, ring, pipeline, fsdp, large_units, messages, more_ranks]


def run(case):
    wrong.clear()
    case(Place())
    return list(wrong)


sys.exit(cases.run(BUILD, arguments.entry, [("truth.replay." + case.__name__, lambda case=case: run(case)) for case in CASES
                                            if not arguments.cases or case.__name__ in arguments.cases]))
