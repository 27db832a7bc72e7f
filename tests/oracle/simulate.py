"""The run that a make_run text describes, simulated for all ranks at once.

Written from tests/make_run/README.md alone; shares no code with make_run or
Lockstep. Gives true (cluster) times as Python integers.
"""

from dataclasses import dataclass, field
from fractions import Fraction

NEVER = None
KINDS = {"allreduce": 1, "allgather": 2, "reducescatter": 3, "alltoall": 4, "barrier": 5, "bcast": 6, "reduce": 7,
         "gather": 8, "scatter": 9, "finalize": 13}
EMPTY, ROOT_SENDS, ROOT_RECEIVES = (5, 13), (6, 9), (7, 8)
TIME = {"": 1, "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
SIZE = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
RATE = {"B/s": 1, "kB/s": 10**3, "MB/s": 10**6, "GB/s": 10**9}
SHARE = {"": 10**6, "%": 10**4, "ppm": 1}
MASK = 2**64 - 1
COMPUTE = 7
WAITS = {"other": 0, "sleep": 1, "lock": 2, "condition": 3, "semaphore": 4, "python": 5, "join": 6, "child": 7, "file": 8, "socket": 9}
LEAST_WAIT = 20_000


def quantity(text, units):
    at = 0
    while at < len(text) and text[at] in "+-.0123456789":
        at += 1
    value = Fraction(text[:at]) * units[text[at:]]
    return int(value)  # Cut toward zero.


def duration(text): return quantity(text, TIME)
def size(text): return quantity(text, SIZE)
def share(text): return quantity(text, SHARE)


def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def random(*words):
    h = 0x6C6F636B
    for w in words:
        h = mix(h ^ mix((w + 0x9E3779B97F4A7C15) & MASK))
    return h


@dataclass
class Description:
    values: dict = field(default_factory=lambda: dict(
        ranks=2, steps=10, warmup=0, seed=1, nodes=1, epoch=10**12, jitter=0, poll=100_000, dispatch=0,
        progress="none"))
    alpha: int = 10_000
    bandwidth: int = 5 * 10**9
    skew: int = 0
    call: int = 500
    gpu: bool = False
    marks: bool = True
    ideal_clocks: bool = True
    comms: dict = field(default_factory=lambda: {"world": {}})
    late: list = field(default_factory=list)
    slow: list = field(default_factory=list)
    starve: list = field(default_factory=list)
    stall: list = field(default_factory=list)
    missing: set = field(default_factory=set)
    ends: list = field(default_factory=list)
    damage: list = field(default_factory=list)
    sensors: dict = None
    throttled: dict = field(default_factory=dict)
    bodies: dict = field(default_factory=lambda: {"setup": [], "step": [], "teardown": []})

    def __getattr__(self, name):
        return self.__dict__["values"][name]

    def groups(self, comm):
        """Lists of members' world ranks."""
        c, n = self.comms[comm], self.ranks
        if "block" in c:
            k, j = int(c["block"]), int(c.get("stride", 1))
            return [list(range(b + i, min(b + k, n), j)) for b in range(0, n, k) for i in range(min(j, n - b))]
        if "stride" in c:
            k = int(c["stride"])
            return [list(range(b, n, k)) for b in range(min(k, n))]
        if "ranks" in c:
            return [[int(r) for r in c["ranks"].split(",")]]
        return [list(range(n))]


def parse(text, sets=()):
    d = Description()
    override = dict(s.split("=", 1) for s in sets)
    variables, body, stack = {}, None, []
    lines = text.splitlines()
    pending_sets = dict(override)
    for line in lines:
        words = line.split("#")[0].split()
        if not words:
            continue
        for name, value in sorted(variables.items(), key=lambda kv: -len(kv[0])):
            words = [w.replace("$" + name, value) for w in words]
        verb, plain = words[0], [w for w in words[1:] if "=" not in w]
        keys = dict(w.split("=", 1) for w in words[1:] if "=" in w)
        if verb == "let":
            variables[plain[0]] = pending_sets.pop(plain[0], plain[1])
        elif body is None and verb in d.bodies:
            body = d.bodies[verb]
        elif body is None:
            if verb in pending_sets:
                plain = [pending_sets.pop(verb)]
            directive(d, verb, plain, keys)
        elif verb == "repeat":
            stack.append((len(body), int(plain[0])))
        elif verb == "end" and stack:
            at, times = stack.pop()
            body[at:] = body[at:] * times
        elif verb == "end":
            body = None
        else:
            operation(d, body, verb, plain, keys)
    for verb, value in pending_sets.items():
        directive(d, verb, [value], {})
    return d


def directive(d, verb, plain, keys):
    if verb in ("ranks", "steps", "warmup", "seed", "nodes"):
        d.values[verb] = int(plain[0])
    elif verb in ("epoch", "poll", "dispatch"):
        d.values[verb] = duration(plain[0])
    elif verb == "jitter":
        d.values[verb] = share(plain[0])
    elif verb == "progress":
        d.values[verb] = plain[0]
    elif verb == "gpu":
        d.gpu = True
    elif verb == "marks":
        d.marks = plain[0] != "off"
    elif verb == "network":
        d.alpha = duration(keys.get("alpha", str(d.alpha)))
        d.skew = duration(keys.get("skew", str(d.skew)))
        d.call = duration(keys.get("call", str(d.call)))
        if "bandwidth" in keys:
            d.bandwidth = quantity(keys["bandwidth"], RATE)
    elif verb == "comm":
        d.comms[plain[0]] = keys
    elif verb in ("clock", "clocks", "bursts"):
        d.ideal_clocks &= verb == "bursts"
    elif verb in ("late", "slow", "starve", "stall"):
        first, last = 0, None
        if "steps" in keys:
            parts = keys["steps"].split("-")
            first, last = int(parts[0]), int(parts[-1])
        getattr(d, verb).append(dict(rank=int(keys["rank"]), at=keys.get("at", ""), first=first, last=last,
                                     every=int(keys.get("every", "1")), by=duration(keys.get("by", "0")),
                                     factor=share(keys.get("factor", "1")), kind=WAITS.get(keys.get("kind")),
                                     others=duration(keys["others"]) if "others" in keys else None))
    elif verb == "missing":
        d.missing.add(int(keys["rank"]))
    elif verb in ("died", "cut"):
        d.ends.append(dict(rank=int(keys["rank"]), step=int(keys["step"]), cut=verb == "cut"))
    elif verb in ("delete", "drop"):
        d.damage.append(dict(keys, verb=verb))
    elif verb == "sensors":
        d.sensors = dict(period=duration(keys.get("period", "100ms")), clock=int(keys.get("clock", 1980)))
    elif verb == "throttle":
        d.throttled[int(keys["rank"])] = dict(clock=int(keys.get("clock", 1200)), reasons=int(keys.get("reasons", 64)))
    else:
        raise ValueError("unknown directive " + verb)


def operation(d, body, verb, plain, keys):
    first, on = len(body), keys.pop("on", None)
    if verb in PATTERNS:
        for line in PATTERNS[verb](d, keys):
            words = line.split()
            operation(d, body, words[0], [w for w in words[1:] if "=" not in w],
                      dict(w.split("=", 1) for w in words[1:] if "=" in w))
    else:
        one_operation(d, body, verb, plain, keys)
    if on:
        block, index = map(int, on.split(":"))
        for op in body[first:]:
            op["on"] = (block, index)


def data_parallel(d, keys):
    buckets, comm = keys["buckets"].split(","), " comm=" + keys["comm"] if "comm" in keys else ""
    forward, backward, layers = duration(keys["forward"]), duration(keys["backward"]), int(keys.get("layers", 4))
    if not d.gpu:
        return [f"forward {forward}", f"backward {backward} buckets={keys['buckets']}{comm}", "waitall"]
    k = max(1, layers // len(buckets))
    out = ["push forward category=forward", f"kernel {forward // layers} count={layers} name=forward_gemm", "pop",
           "push backward category=backward"]
    for b in buckets:
        out += [f"kernel {backward // (len(buckets) * k)} count={k} name=backward_gemm", f"nccl allreduce {b}{comm}"]
    return out + ["pop", "join"]


def fully_sharded(d, keys):
    units, b, comm = int(keys["units"]), keys["bytes"], " comm=" + keys["comm"] if "comm" in keys else ""
    ahead, layers = int(keys.get("prefetch", 1)), int(keys.get("layers", 4))
    out = []
    for phase in ("forward", "backward"):
        whole, posted = duration(keys[phase]), 0
        out.append(f"push {phase} category={phase}")
        for i in range(units):
            while posted <= min(i + ahead, units - 1):
                out.append((f"nccl allgather {b} free" if d.gpu else f"iallgather {b}") + f" as={phase}{posted}{comm}")
                posted += 1
            if d.gpu:
                out += [f"join {phase}{i}", f"kernel {whole // (units * layers)} count={layers} name={phase}_gemm"]
            else:
                out += [f"wait {phase}{i}", f"compute {whole // units}"]
            if phase == "backward":
                out.append(f"nccl reducescatter {b}{comm}" if d.gpu else f"ireducescatter {b} as=rs{comm}")
        out.append("pop")
    return out + ["join" if d.gpu else "waitall"]


def pipeline(d, keys):
    stages, batches = int(keys["stages"]), int(keys["microbatches"])
    k, layers = d.ranks // stages, int(keys.get("layers", 4))
    order = []
    for s in range(stages):
        w = min(batches, stages - 1 - s)
        order.append([("f", m) for m in range(w)])
        for m in range(batches):
            if m + w < batches:
                order[s].append(("f", m + w))
            order[s].append(("b", m))

    def task(s, kind, m):
        before, after = (s - 1, s + 1) if kind == "f" else (s + 1, s - 1)
        phase = "forward" if kind == "f" else "backward"
        out = []
        if 0 <= before < stages:
            message = f"{kind}{before}.{m}"
            if d.gpu:
                out += [f"ncclrecv {message} stream={31 if kind == 'f' else 33}", f"join {message}"]
            else:
                out.append(f"recv {message}")
        whole = duration(keys[phase])
        out.append(f"kernel {whole // layers} count={layers} name={phase}_gemm" if d.gpu else f"{phase} {whole}")
        if "tensor" in keys:
            reduce = f"allreduce {keys['tensorbytes']} comm={keys['tensor']}"
            out += ["nccl " + reduce + " stream=21 as=tensor", "join tensor"] if d.gpu else [reduce]
        if 0 <= after < stages:
            send = f"send {keys['bytes']} to={(after - s) * k} as={kind}{s}.{m}"
            out.append(f"nccl{send} stream={30 if kind == 'f' else 32}" if d.gpu else send)
        return [f"{line} on={k}:{s}" for line in out]

    lines, at, sent = [], [0] * stages, set()
    while any(at[s] < len(order[s]) for s in range(stages)):
        for s in range(stages):
            while at[s] < len(order[s]):
                kind, m = order[s][at[s]]
                before = s - 1 if kind == "f" else s + 1
                if 0 <= before < stages and (kind, before, m) not in sent:
                    break
                lines += task(s, kind, m)
                sent.add((kind, s, m))
                at[s] += 1
    if "data" in keys:
        reduce = f"allreduce {keys['databytes']} comm={keys['data']}"
        lines += ["nccl " + reduce, "join"] if d.gpu else [reduce]
    return lines


PATTERNS = {"ddp": data_parallel, "fsdp": fully_sharded, "pipeline": pipeline}


def one_operation(d, body, verb, plain, keys):
    def op(do, **more):
        body.append(dict(dict(do=do, name="", at="", base=0, jitter=0, comm="world", root=0, count=1, on=None), **more))

    jitter = share(keys["jitter"]) if "jitter" in keys else d.jitter
    category = {"compute": 0, "input": 1, "forward": 2, "backward": 3, "optimizer": 4}
    if verb == "backward" and "buckets" in keys:
        buckets, base = [size(b) for b in keys["buckets"].split(",")], duration(plain[0])
        op("push", name="backward", category=3)
        for i, b in enumerate(buckets):
            piece = base // len(buckets)
            if i == len(buckets) - 1:
                piece = base - piece * i
            op("compute", base=piece, jitter=jitter, at=keys.get("name", "backward"), category=0)
            op("post", kind=1, bytes=b, comm=keys.get("comm", "world"))
        op("pop")
    elif verb in category:
        name = keys.get("name", "" if verb == "compute" else verb)
        op("compute", base=duration(plain[0]), jitter=jitter, name=name, at=name or verb, category=category[verb])
    elif verb in ("other", "io", "rma", "init"):
        op("other", base=duration(plain[0]), cls=verb)
    elif verb == "overhead":
        op("overhead", base=duration(plain[0]))
    elif verb in ("push", "pop", "test", "join", "sync"):
        op(verb, name=plain[0] if plain else "", category=0)
    elif verb in ("wait", "waitall"):
        op("wait", name=plain[0] if plain else "")
    elif verb == "ring":
        op("ring", bytes=size(plain[0]), shift=int(keys.get("shift", 1)))
    elif verb == "start":
        init = next(o for o in d.bodies["setup"] if o["do"] == "init" and o["name"] == plain[0])
        body.append(dict(init, do="start"))
    elif verb == "host":
        op("host", base=duration(plain[0]), at="host")
    elif verb == "kernel":
        name = keys.get("name", "kernel")
        op("kernel", base=duration(plain[0]), jitter=jitter, name=name, at=name, count=int(keys.get("count", 1)),
           launch=duration(keys.get("launch", "5us")))
    elif verb == "nccl":
        sizes = [size(b) for b in plain[1].split(",")]
        op("nccl", kind=KINDS[plain[0]], bytes=sum(sizes), parts=sizes, comm=keys.get("comm", "world"), name=keys.get("as", ""),
           root=int(keys.get("root", 0)), stream=int(keys.get("stream", 20)), free="free" in plain, launch=duration(keys.get("launch", "5us")))
    elif verb in ("send", "ncclsend"):
        op(verb, bytes=size(plain[0]), to=int(keys["to"]), name=keys["as"], stream=int(keys.get("stream", 20)),
           launch=duration(keys.get("launch", "5us")))
    elif verb in ("recv", "ncclrecv"):
        sends = [o for o in body if o["do"] == verb.replace("recv", "send") and o["name"] == plain[0]]
        op(verb, bytes=sends[-1]["bytes"], to=sends[-1]["to"], name=plain[0], stream=int(keys.get("stream", 20)),
           launch=duration(keys.get("launch", "5us")))
    elif verb == "copy":
        op("copy", bytes=size(plain[1]), rate=quantity(keys.get("bandwidth", "25GB/s"), RATE), sync="sync" in plain,
           launch=duration(keys.get("launch", "5us")))
    else:
        do = "blocking"
        if verb not in KINDS:
            do, verb = {"i": "post", "p": "init"}[verb[0]], verb[1:]
        op(do, kind=KINDS[verb], bytes=size(plain[0]) if plain else 0, comm=keys.get("comm", "world"),
           root=int(keys.get("root", 0)), name=keys.get("as", ""))


@dataclass
class Rank:
    """One rank's way: its state while it runs, and what it leaves."""
    rank: int
    t: int
    off_cpu: int = 0
    asleep: int = 0
    waits: list = field(default_factory=list)     # Dicts as definitions.Activity has them.
    cpu_at_marks: list = field(default_factory=list)  # (CPU time, off_cpu) at each mark.
    stopped: bool = False        # Dead, or hanging for ever.
    recording: bool = True       # False behind a cut.
    pending: list = field(default_factory=list)
    thread_free: int = 0
    compute_free: int = 0
    compute_ended: int = 0       # The compute stream's last kernel; compute_free also waits for joins.
    joined: int = 0              # What joins since then wait for.
    held: list = field(default_factory=list)       # (stream, begin, ns) by which waits of streams held operations back
    overheads: list = field(default_factory=list)
    comm_free: dict = field(default_factory=dict)  # Per stream.
    gpu_ends: dict = field(default_factory=dict)   # Of named NCCL operations.
    copy_free: int = 0
    calls: list = field(default_factory=list)     # (begin, end, thread, None or "other", "io", "rma", "init")
    inputs: list = field(default_factory=list)
    ops: list = field(default_factory=list)
    kernels: list = field(default_factory=list)   # compute only
    copies: list = field(default_factory=list)
    marks: list = field(default_factory=list)     # (index, time, last)
    gpu_events: list = field(default_factory=list)
    launches: list = field(default_factory=list)  # (launch begin, kernel begin, None of a copy, end)
    sign: int = 0

    def call(self, begin, end, thread=0, other=None):
        if self.recording:
            self.calls.append((begin, end, thread, other))
            self.sign = max(self.sign, end)


class Run:
    def __init__(self, d):
        self.d = d
        self.ranks = [Rank(r, d.epoch, sign=d.epoch) for r in range(d.ranks)]
        self.seq, self.busy, self.persistent, self.inflight = {}, {}, {}, []
        self.rings = 0
        self.sent = {}      # (sender, name): time of the latest send.
        self.messages = {}  # (sender, receiver, which half): number of them.
        self.group_of = {c: {r: g for g, members in enumerate(d.groups(c)) for r in members} for c in d.comms}
        self.body("setup", -1)
        for step in range(d.steps):
            self.mark(step, False)
            self.body("step", step)
        self.mark(d.steps, True)
        self.body("teardown", d.steps)

    def mark(self, index, last):
        for r in self.ranks:
            if r.stopped:
                continue
            if r.recording:
                r.marks.append((index, r.t, last))
                r.cpu_at_marks.append((r.t - self.d.epoch - r.off_cpu - r.asleep, r.off_cpu))
                r.sign = max(r.sign, r.t)
            for end in self.d.ends:
                if end["rank"] == r.rank and end["step"] == index:
                    if end["cut"]:
                        r.recording = False
                    else:
                        r.stopped = True

    def body(self, which, step):
        ops = self.d.bodies[which]
        # Each `late` strikes one operation of the step's body.
        self.struck = {}
        if which == "step":
            for i, late in enumerate(self.d.late + self.d.stall):
                for at, op in enumerate(ops):
                    if self.concerns(op, late["at"]):
                        self.struck[i] = at
                        break
        for at, op in enumerate(ops):
            self.execute(op, step, at, which == "step")

    @staticmethod
    def takes_part(op, rank):
        return not op["on"] or rank // op["on"][0] == op["on"][1]

    def groups(self, op):
        return [(g, members) for g, members in enumerate(self.d.groups(op["comm"])) if self.takes_part(op, members[0])]

    @staticmethod
    def concerns(op, at):
        if op["do"] not in ("compute", "kernel", "host"):
            return False
        if at:
            return op["at"] == at
        return op["do"] == "kernel" or (op["do"] == "compute" and op["category"] != 1)

    def length(self, r, op, step, at, in_step, i=0):
        def hits(x):
            return (in_step and x["rank"] in (-1, r.rank) and step >= x["first"] and
                    (x["last"] is None or step <= x["last"]) and (step - x["first"]) % x["every"] == 0)
        d = op["base"]
        for slow in self.d.slow:
            if hits(slow) and self.concerns(op, slow["at"]):
                d = d * slow["factor"] // 10**6
        if op["jitter"]:
            h = random(self.d.seed, r.rank, step & MASK, at * 1000 + i if op["do"] == "kernel" else at)
            u = sum(h >> s & 0xFFFF for s in (0, 16, 32, 48))
            d += d * op["jitter"] * (u - 131070) // (37837 * 10**6)
        for n, late in enumerate(self.d.late):
            if i == 0 and hits(late) and self.struck.get(n) == at:
                d += late["by"]
        d = max(d, 0)
        on_cpu = d
        for starve in self.d.starve:
            if hits(starve) and self.concerns(op, starve["at"]):
                d = d * starve["factor"] // 10**6
        r.off_cpu += d - on_cpu
        self.stalls = [s for n, s in enumerate(self.d.stall, len(self.d.late)) if i == 0 and hits(s) and self.struck.get(n) == at]
        if op["do"] != "kernel":
            r.asleep += sum(s["by"] for s in self.stalls)
        return d + sum(s["by"] for s in self.stalls)

    def blocked(self, r, kind, begin, end, waker=None, others=None):
        if r.recording:
            r.waits.append(dict(begin=begin, end=end, kind=kind, waker=waker, woken=None if waker is None else end, others_cpu=others,
                                timed_out=0))
            r.sign = max(r.sign, end)

    def cost(self, op):
        if op.get("kind") == KINDS["finalize"]:
            return 40_000_000
        if op.get("kind") in EMPTY:
            return self.d.alpha
        return self.d.alpha + op["bytes"] * 10**9 // self.d.bandwidth

    def execute(self, op, step, at, in_step):
        do = op["do"]
        live = [r for r in self.ranks if not r.stopped and self.takes_part(op, r.rank)]
        if do == "compute":
            for r in live:
                begin = r.t
                self.compute(r, self.length(r, op, step, at, in_step))
                until = r.t - sum(s["by"] for s in self.stalls)
                for s in self.stalls:
                    until += s["by"]
                    if s["kind"] is not None:
                        self.blocked(r, s["kind"], until - s["by"], until, others=s["others"])
                if op["category"] == 1 and r.recording:
                    r.inputs.append((begin, r.t))
                if op["name"] and r.recording:
                    r.sign = max(r.sign, r.t)
        elif do == "other":
            for r in live:
                r.call(r.t, r.t + op["base"], other=op["cls"])
                r.t += op["base"]
        elif do in ("push", "pop"):
            for r in live:
                if r.recording:
                    r.sign = max(r.sign, r.t)
        elif do == "test":
            for r in live:
                if self.d.progress not in ("thread", "helper") and r.pending:
                    self.test(r)
        elif do == "init":
            for c, members in self.groups(op):
                key = (op["comm"], c) + self.function(op)
                self.persistent[(op["name"], c)] = [self.seq.get(key, 0), 0]
                self.seq[key] = self.seq.get(key, 0) + 1
                for m in members:
                    r = self.ranks[m]
                    if not r.stopped:
                        r.call(r.t, r.t + self.d.call)
                        r.t += self.d.call
        elif do in ("post", "start"):
            self.post(op)
        elif do == "blocking":
            self.blocking(op, step, at)
        elif do == "wait":
            self.wait(op)
        elif do == "ring":
            self.ring(op)
        elif do in ("send", "recv"):
            self.message(op, live)
        else:
            self.gpu(op, step, at, in_step)

    def function(self, op):
        """NCCL numbers its operations per kind."""
        return (op["kind"],) if self.d.gpu else ()

    def identity(self, op, group):
        key = (op["comm"], group) + self.function(op)
        if op["do"] == "start":
            entry = self.persistent[(op["name"], group)]
            entry[1] += 1
            return entry[0], entry[1]
        self.seq[key] = self.seq.get(key, 0) + 1
        return self.seq[key] - 1, 0

    def row(self, r, op, group, seq, start, mode, members, begin, post_end, part=None):
        row = dict(comm=(op["comm"], group), function=sum(self.function(op)), seq=seq, start=start, kind=op["kind"], mode=mode, bytes=op["bytes"] if part is None else part,
                   members=len(members), root=members[op["root"] % len(members)], begin=begin, post_end=post_end,
                   last_incomplete=None, wait_begin=None, end=None, splittable=True)
        if r.recording:
            r.ops.append(row)
        return row

    def post(self, op):
        for group, members in self.groups(op):
            seq, start = self.identity(op, group)
            here = [self.ranks[m] for m in members if not self.ranks[m].stopped]
            instance = dict(op=op, whole=len(here) == len(members), arrival=max((r.t for r in here), default=0),
                            done=NEVER, key=(op["comm"], group), waits=[], expected=len(here))
            if not instance["whole"]:
                self.busy[instance["key"]] = NEVER
            elif self.d.progress == "none":
                self.inflight.append(instance)
            else:
                before = self.busy.get(instance["key"], 0)
                self.move(instance, instance["arrival"] + (self.d.call if self.d.progress == "helper" else 0))
            for r in here:
                begin, r.t = r.t, r.t + self.d.call
                if self.d.progress == "helper":
                    start_at = max(r.t, before)
                    row = self.row(r, op, group, seq, start, 0, members, start_at, instance["done"])
                    row["thread"] = 1 + list(self.d.comms).index(op["comm"])
                    self.finish(r, row, start_at, instance["done"])
                    r.pending.append((instance, row))
                    continue
                r.call(begin, r.t)
                row = self.row(r, op, group, seq, start, 2 if op["do"] == "start" else 1, members, begin, r.t)
                r.pending.append((instance, row))

    def move(self, instance, begin):
        before = self.busy.get(instance["key"], 0)
        instance["done"] = NEVER if before is NEVER else max(begin, before) + self.cost(instance["op"])
        self.busy[instance["key"]] = instance["done"]

    def finish(self, r, row, wait_begin, end):
        # Behind a cut nothing is recorded, completions included.
        if r.recording:
            row["wait_begin"], row["end"] = wait_begin, end

    def test(self, r):
        entry, r.t = r.t, r.t + self.d.call
        kept = []
        for instance, row in r.pending:
            if instance["done"] is not NEVER and instance["done"] <= entry:
                self.finish(r, row, entry, r.t)
            else:
                if r.recording:
                    row["last_incomplete"] = r.t
                kept.append((instance, row))
        r.pending = kept
        r.call(entry, r.t)

    def compute(self, r, length):
        if self.d.progress == "test":
            while length >= self.d.poll and r.pending:
                r.t += self.d.poll
                length -= self.d.poll
                self.test(r)
        r.t += length

    def thread_until(self, r, w):
        while r.pending:
            instance, row = r.pending[0]
            done = instance["done"]
            if done is NEVER:
                return
            begin = max(r.thread_free, row["post_end"])
            entry = max(begin, done)
            if entry + self.d.call > w:
                if begin < w:
                    r.call(begin, w, thread=1)
                    for _, other in r.pending:
                        if r.recording:
                            other["last_incomplete"] = w
                return
            if begin < entry:
                r.call(begin, entry, thread=1)
                if r.recording:
                    row["last_incomplete"] = entry
            r.thread_free = entry + self.d.call
            r.call(entry, r.thread_free, thread=1)
            self.finish(r, row, entry, r.thread_free)
            r.pending.pop(0)

    def wait(self, op):
        live = [r for r in self.ranks if not r.stopped and self.takes_part(op, r.rank)]
        for r in live:
            if self.d.progress == "thread":
                self.thread_until(r, r.t)
            for instance, _ in r.pending:
                if op["name"] in ("", instance["op"]["name"]):
                    instance["waits"].append(r.t)
        if self.d.progress == "none":
            kept = []
            for instance in self.inflight:
                if op["name"] not in ("", instance["op"]["name"]):
                    kept.append(instance)
                elif len(instance["waits"]) == instance["expected"]:
                    self.move(instance, max(instance["waits"]))
                else:
                    self.busy[instance["key"]] = NEVER
            self.inflight = kept
        for r in live:
            mine = [(i, row) for i, row in r.pending if op["name"] in ("", i["op"]["name"])]
            if any(i["done"] is NEVER for i, _ in mine):
                r.stopped = True
                continue
            entry = r.t
            r.t = max([entry + self.d.call] + [i["done"] for i, _ in mine])
            if self.d.progress == "helper":
                last = [row["thread"] for i, row in mine if i["done"] == r.t]
                if last and r.t - entry >= LEAST_WAIT:
                    self.blocked(r, WAITS["condition"], entry, r.t, waker=last[-1])
                r.asleep += r.t - entry
                r.pending = [p for p in r.pending if p not in mine]
                continue
            for _, row in mine:
                self.finish(r, row, entry, r.t)
            r.pending = [p for p in r.pending if p not in mine]
            r.call(entry, r.t)
            r.thread_free = r.t

    def blocking(self, op, step, at):
        for group, members in self.groups(op):
            seq, start = self.identity(op, group)
            here = [self.ranks[m] for m in members if not self.ranks[m].stopped]
            if len(here) < len(members):
                for r in here:
                    r.stopped = True
                continue
            latest = max(r.t for r in here)
            root = self.ranks[members[op["root"] % len(members)]]
            root_at = root.t
            for r in here:
                entry = r.t
                if op["kind"] in ROOT_SENDS:
                    r.t = max(entry, root_at) + self.cost(op)
                elif op["kind"] in ROOT_RECEIVES and r is not root:
                    r.t = entry + self.d.call
                else:
                    r.t = latest + self.cost(op)
                    if self.d.skew and op["kind"] not in ROOT_RECEIVES:
                        r.t += random(self.d.seed ^ 1, r.rank, step & MASK, at) % self.d.skew
                r.call(entry, r.t)
                row = self.row(r, op, group, seq, start, 0, members, entry, r.t)
                self.finish(r, row, entry, r.t)

    def ring(self, op):
        entries = {r.rank: r.t for r in self.ranks if not r.stopped}
        n, number = self.d.ranks, self.rings
        self.rings += 1
        for rank, entry in entries.items():
            r, left = self.ranks[rank], (rank - op["shift"]) % n
            if left not in entries:
                r.stopped = True
                continue
            r.t = max(entry + self.d.call, entries[left] + self.cost(op))
            r.call(entry, r.t)
            if r.recording:
                common = dict(p2p=True, begin=entry, wait_begin=entry, post_end=r.t, end=r.t, last_incomplete=None,
                              mode=0, comm=("world", 0))
                right = (rank + op["shift"]) % n
                r.ops.append(dict(common, receive=False, message=(rank, right, op["shift"], number)))
                r.ops.append(dict(common, receive=True, message=(left, rank, op["shift"], number)))

    def message(self, op, live):
        for r in live:
            entry, sends = r.t, op["do"] == "send"
            peer = r.rank + op["to"] if sends else r.rank - op["to"]
            if sends:
                self.sent[(r.rank, op["name"])] = entry
                r.t = entry + self.d.call
            else:
                sent = self.sent.pop((peer, op["name"]), None)
                if sent is None:
                    r.stopped = True
                    continue
                r.t = max(entry + self.d.call, sent + self.cost(op))
            r.call(entry, r.t)
            ends = (r.rank, peer) if sends else (peer, r.rank)
            number = self.messages[ends + (sends,)] = self.messages.get(ends + (sends,), -1) + 1
            if r.recording:
                r.ops.append(dict(p2p=True, begin=entry, wait_begin=entry, post_end=r.t, end=r.t, last_incomplete=None,
                                  mode=0, comm=("world", 0), receive=not sends, message=ends + (77, number)))

    @staticmethod
    def held(r, stream, begin, released, own_end):
        """Launched by now and its stream free, what begins then still waited for `released`."""
        if r.recording and released > max(r.t, own_end):
            r.held.append((stream, begin, released - max(r.t, own_end)))

    def gpu_message(self, op, r):
        sends, launch = op["do"] == "ncclsend", r.t + self.d.dispatch
        r.t = launch + op["launch"]
        begin = max(r.t + 2000, r.compute_free if sends else 0, r.comm_free.get(op["stream"], 0))
        self.held(r, op["stream"], begin, r.compute_free if sends else 0, r.comm_free.get(op["stream"], 0))
        if sends:
            self.sent[(r.rank, op["name"])] = begin
            end = begin + self.cost(op)
        else:
            sent = self.sent.pop((r.rank - op["to"], op["name"]), None)
            if sent is None:
                r.stopped = True
                return
            end = max(begin, sent) + self.cost(op)
        r.comm_free[op["stream"]] = r.gpu_ends[op["name"]] = end
        if r.recording:
            peer = r.rank + op["to"] if sends else r.rank - op["to"]
            ends = (r.rank, peer) if sends else (peer, r.rank)
            number = self.messages[ends + (sends,)] = self.messages.get(ends + (sends,), -1) + 1
            r.ops.append(dict(p2p=True, receive=not sends, comm=("world", 0), message=ends + (0, number), mode=3, begin=begin,
                              post_end=end, last_incomplete=None, wait_begin=begin, end=end))
            r.gpu_events.append((begin, end))
            r.launches.append((launch, begin, end))

    def gpu(self, op, step, at, in_step):
        do = op["do"]
        live = [r for r in self.ranks if not r.stopped and self.takes_part(op, r.rank)]
        if do == "nccl":
            for group, members in self.groups(op):
                numbers = [self.identity(op, group) for _ in op["parts"]]
                here = [self.ranks[m] for m in members if not self.ranks[m].stopped]
                begins = []
                for r in here:
                    launch = r.t + self.d.dispatch
                    r.t = launch + op["launch"]
                    begin = max(r.t + 2000, 0 if op["free"] else r.compute_free, r.comm_free.get(op["stream"], 0))
                    self.held(r, op["stream"], begin, 0 if op["free"] else r.compute_free, r.comm_free.get(op["stream"], 0))
                    begins.append((launch, begin))
                if len(here) < len(members):
                    for r in here:
                        r.stopped = True
                    continue
                end = max(b for _, b in begins) + self.cost(op)
                for r, (launch, begin) in zip(here, begins):
                    r.comm_free[op["stream"]] = end
                    if op["name"]:
                        r.gpu_ends[op["name"]] = end
                    for part, (seq, start) in zip(op["parts"], numbers):
                        row = self.row(r, op, group, seq, start, 3, members, begin, end, part)
                        self.finish(r, row, begin, end)
                    if r.recording:
                        r.gpu_events.append((begin, end))
                        r.launches.append((launch, begin, end))
            return
        for r in live:
            if do == "host":
                r.t += self.length(r, op, step, at, in_step)
            elif do == "kernel":
                for i in range(op["count"]):
                    launch = r.t + self.d.dispatch
                    r.t = launch + op["launch"]
                    begin = max(r.t + 2000, r.compute_free)
                    self.held(r, COMPUTE, begin, r.joined, r.compute_ended)
                    r.joined = 0
                    r.compute_free = r.compute_ended = begin + self.length(r, op, step, at, in_step, i)
                    if r.recording:
                        r.kernels.append((begin, r.compute_free))
                        r.gpu_events.append((begin, r.compute_free))
                        r.launches.append((launch, begin, r.compute_free))
            elif do == "copy":
                launch = r.t + self.d.dispatch
                r.t = launch + op["launch"]
                begin = max(r.t + 2000, r.copy_free)
                r.copy_free = begin + 2000 + op["bytes"] * 10**9 // op["rate"]
                if r.recording:
                    r.copies.append((begin, r.copy_free))
                    r.gpu_events.append((begin, r.copy_free))
                    r.launches.append((launch, None, r.copy_free))
                if op["sync"]:
                    r.t = max(r.t, r.copy_free)
            elif do == "join":
                ends = [r.gpu_ends.get(op["name"], 0)] if op["name"] else r.comm_free.values()
                r.joined = max([r.joined, *ends])
                r.compute_free = max([r.compute_free, *ends])
            elif do in ("ncclsend", "ncclrecv"):
                self.gpu_message(op, r)
            elif do == "overhead":
                if r.recording:
                    r.sign = max(r.sign, r.t + op["base"])
                    r.overheads.append((r.t, r.t + op["base"]))
                r.t += op["base"]
            elif do == "sync" and op["name"] == "device":
                r.t = max([r.t, r.compute_free, r.copy_free, *r.comm_free.values()])
            elif do == "sync":
                r.t = max(r.t, r.gpu_ends.get(op["name"], 0) if op["name"] else r.compute_free)
