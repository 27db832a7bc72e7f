"""Idle time of GPUs in parts, after docs/definitions.md, "Idle time of a GPU": moment by moment, each by looking at
everything that is open then. Used by gpu_tables.py; no code of Lockstep's is its model."""

import bisect
import collections
import itertools

NONE = 0xFFFFFFFF
SLACK = 2_000
PROMPT = 30_000
FAR = 2**62
UNKNOWN = ("host_unknown", "not_started", "launch_unknown", "edge_of_trace")
MAY_BE_INPUT = ("operator", "between", "host_unknown", "call")
LAUNCH_LIMITED = ("before_forward", "memory", "copy", "load", "launch", "call", "operator", "between", "host_unknown", "start")
FORWARD, BACKWARD, OPTIMIZER, INPUT, COMMUNICATION = 2, 3, 4, 1, 5
CPU_OP, PYTHON = 3, 4

Part = collections.namedtuple("Part", "begin end kind blocking")
Gap = collections.namedtuple("Gap", "device begin end parts")


def innermost(things):
    """Of (begin, end, row, ...) the one that began last; of those the shortest, then the last row."""
    return max(things, key=lambda x: (x.begin, -x.end, x.row), default=None)


class Open:
    """What of things with a begin and an end is open at a moment."""

    def __init__(self, things):
        self.things = sorted(things, key=lambda thing: thing.begin)
        self.begins = [thing.begin for thing in self.things]
        self.ends = list(itertools.accumulate((thing.end for thing in self.things), max))  # Of all up to this one the last.

    def at(self, now):
        out, i = [], bisect.bisect_right(self.begins, now)
        while i > 0 and self.ends[i - 1] > now:
            i -= 1
            if self.things[i].end > now:
                out.append(self.things[i])
        return out


class Idle:
    def __init__(self, rank, windows):
        self.rank, self.windows = rank, windows
        self.knows = any(r.source in (CPU_OP, PYTHON) for r in rank.ranges)
        self.by_api = {b.api.row: i for i, b in enumerate(rank.blocking) if b.api}
        self.pageable = {op.api.row for op in rank.ops if op.copy and op.api and rank.copies["kind"][op.row] == 1 and
                         rank.copies["host_memory"][op.row] == 1}
        threads = {thing.thread for thing in rank.ranges + rank.calls}
        self.ranges, self.calls = ({th: Open([t for t in things if t.thread == th]) for th in threads}
                                   for things in (rank.ranges, rank.calls))
        self.model = self.model_names()
        self.before_forward = self.preparations()
        moments = {t for thing in rank.ranges + rank.calls + rank.blocking for t in (thing.begin, thing.end)}
        self.moments = sorted(moments.union(*((b, e) for _, b, e in rank.mpi + rank.loading), *self.before_forward))

    def launches(self):
        return {op.api.row: op.api for op in self.rank.ops if op.busy and op.api}.values()

    def model_names(self):
        """Names of ranges that enclose the model's run."""
        launches = list(self.launches())
        named = collections.defaultdict(set)
        for call in launches:
            for thread in {call.thread, self.rank.training} & set(self.ranges):
                for r in self.ranges[thread].at(call.begin):
                    named[r.name].add(call.row)
        names, whole = set(), sum(e - b for b, e in self.windows)
        for name, rows in named.items():
            at = [(r.begin, r.end) for r in self.rank.ranges if r.name == name and r.source != CPU_OP]
            marks = sorted({t for piece in at for t in piece} | {t for w in self.windows for t in w})
            covered = sum(e - b for b, e in zip(marks, marks[1:]) if any(x <= b < y for x, y in at) and
                          any(x <= b < y for x, y in self.windows))
            if 2 * len(rows) >= len(launches) or 2 * covered >= whole:
                names.add(name)
        return names

    def preparations(self):
        rank = self.rank
        if any(r.category == INPUT for r in rank.ranges):
            return []
        mine = [r for r in rank.ranges if r.thread == rank.training]
        anchors = rank.step_begins + [r.end for r in mine if r.category == OPTIMIZER and "zero_grad" not in r.name]
        forwards = [r.begin for r in mine if r.category == FORWARD]
        if not forwards:
            for op in rank.ops:
                if op.copy or op.cls != "compute" or not op.api:
                    continue
                around = [r for r in rank.ranges if r.thread == op.api.thread and r.begin <= op.api.begin < r.end]
                if not any(r.category == OPTIMIZER for r in around):
                    forwards.append(min([op.api.begin] + [r.begin for r in around if r.source == CPU_OP]))
        out = []
        for f in set(forwards):
            a = max((a for a in anchors if a <= f), default=None)
            if a is not None and not any(a <= other < f for other in forwards):
                out.append((a, f))
        # Clearing gradients is no input.
        clearing = [(r.begin, r.end) for r in mine if r.category == OPTIMIZER]
        marks = sorted({t for piece in out + clearing for t in piece})
        return [(b, e) for b, e in zip(marks, marks[1:]) if any(x <= b < y for x, y in out) and
                not any(x <= b < y for x, y in clearing)]

    def freeing(self, i):
        call = self.rank.blocking[i].api
        if call is not None and "Free" in call.name:
            return "memory"
        return "copy" if call is not None and call.row in self.pageable else "sync"

    def on_thread(self, thread, now):
        """(kind, blocking call) of what the thread is in, None in nothing."""
        rank = self.rank
        ranges = self.ranges[thread].at(now) if thread in self.ranges else []
        if any(r.category == INPUT for r in ranges):
            return "input", None
        call = innermost(self.calls[thread].at(now) if thread in self.calls else [])
        if call is not None:
            if call.row in self.by_api:
                return self.freeing(self.by_api[call.row]), self.by_api[call.row]
            if call.what in ("launch", "graph"):
                return "launch", None
            if call.what == "copy":
                return ("copy" if call.row in self.pageable else "launch"), None
            if call.what == "memory":
                return "memory", None
            loads = any(word in call.name for word in ("ModuleLoad", "LibraryLoad")) or call.name.startswith(
                ("cuLink", "hiprtc", "nvrtc"))
            return ("load" if loads else "call"), None
        if any(th == thread and b <= now < e for th, b, e in rank.mpi) or any(
                r.category == COMMUNICATION and r.name.startswith(("gloo:", "mpi:", "ucc:")) for r in ranges):
            return "communication", None
        if any(th == thread and b <= now < e for th, b, e in rank.loading):
            return "load", None
        r = innermost(ranges)
        if r is None:
            return None
        if r.source == CPU_OP:
            return "operator", None
        step = r.name in self.model or r.name.startswith("ProfilerStep#")
        return ("host_unknown" if r.source != PYTHON and not self.knows and step and r.category == 0 else "between"), None

    def host(self, thread, now, launch, follows):
        rank = self.rank
        own = self.on_thread(thread, now)
        found = own
        if found is None and rank.training not in (NONE, thread):
            found = self.on_thread(rank.training, now)
        if found is None:
            waits = [i for i, b in enumerate(rank.blocking) if b.thread == NONE and b.begin <= now < b.end]
            found = ("sync", waits[0]) if waits else ("between" if self.knows else "host_unknown", None)
        kind, blocking = found
        if own is not None and kind == "launch" and follows is not None and launch and launch.begin <= now < launch.end:
            return self.freeing(follows), follows
        if kind in MAY_BE_INPUT and any(b <= now < e for b, e in self.before_forward):
            return "before_forward", None
        return kind, blocking

    def follows(self, begin, end, launch, before):
        if launch.begin < begin:
            return None
        idle_end = min(end, launch.begin)
        for thread in (launch.thread, self.rank.training, NONE):
            waited = [(b.end, i) for i, b in enumerate(self.rank.blocking)
                      if b.thread == thread and b.begin < begin and begin - SLACK <= b.end <= idle_end and
                      (b.end >= begin or before.api is None or before.api.begin <= b.begin)]
            if waited:
                return max(waited)[1]
        return None

    def split(self, whole, at, device, before, after):
        """Parts of `at` that make up the gap `whole`; of it the operations before and after."""
        rank = self.rank
        if after is not None and after.api is None:
            return [Part(*at, "launch_unknown", None)]
        launch = after.api if after is not None else None
        thread = launch.thread if launch else before.api.thread if before.api else rank.training
        if thread == NONE:
            return [Part(*at, "edge_of_trace", None)]
        follows = self.follows(*whole, launch, before) if launch and before is not None else None
        launched = launch.end if launch else FAR
        ready = max(launched, whole[0])
        held = None
        if after is not None and len(rank.devices()) > 1:
            op = rank.waits.held(after)[0]
            if op is not None and op.device != device and whole[0] < op.end <= whole[1] and op.end > ready:
                held = (ready, op.end)
                ready = op.end
        edges = {at[0], at[1], launched, ready, ready + PROMPT}
        edges |= set(held or ())
        edges.update(self.moments[bisect.bisect_left(self.moments, at[0]):bisect.bisect_right(self.moments, at[1])])
        marks = sorted(t for t in edges if at[0] <= t <= at[1])
        parts = []
        for b, e in zip(marks, marks[1:]):
            if b < launched:
                kind, blocking = self.host(thread, b, launch, follows)
            elif held and held[0] <= b < held[1]:
                kind, blocking = "stream_wait", None
            elif b < ready + PROMPT:
                kind, blocking = (self.freeing(follows), follows) if follows is not None else ("start", None)
            else:
                kind, blocking = "not_started", None
            parts.append(Part(b, e, kind, blocking))
        return parts

    def gaps(self):
        out = []
        for device in self.rank.devices():
            ops = [op for op in self.rank.ops if op.device == device and op.busy]
            # An operation without duration ends a gap and begins the next one.
            marks = sorted({op.begin for op in ops} | {op.end for op in ops})
            running, ending, beginning = Open(ops), {op.end: op for op in ops}, {op.begin: op for op in reversed(ops)}
            edges = [-FAR] + marks + [FAR]
            for a, b in zip(edges, edges[1:]):
                if running.at(a):
                    continue
                before, after = ending.get(a), beginning.get(b)
                for begin, end in self.windows:
                    at = (max(a, begin), min(b, end))
                    if at[0] < at[1]:
                        out.append(Gap(device, *at, self.split((a, b), at, device, before, after)))
        return out


def sums(parts):
    total = collections.Counter()
    for part in parts:
        total[part.kind] += part.end - part.begin
    return total


def check(checker, where, number, rank, windows):
    """The tables idle, idle-gaps, syncs and launch-bound of a rank."""
    same = checker.same
    gaps = Idle(rank, windows).gaps()
    several = len(rank.devices()) > 1
    of = lambda gap: gap.device if several else None
    want, count = collections.Counter(), collections.Counter()
    for gap in gaps:
        by_kind = sums(gap.parts)
        same(where + "parts of a gap", sum(by_kind.values()), gap.end - gap.begin)
        by_kind["all"] = gap.end - gap.begin
        for kind, ns in by_kind.items():
            want[of(gap), kind] += ns
            count[of(gap), kind] += ns > 0
    idle, window = sum(g.end - g.begin for g in gaps), sum(e - b for b, e in windows) * len(rank.devices())
    rows = checker.table("idle", number)
    for row in rows:
        key = (row["device"], row["cause"])
        same(where + f"idle gaps {key}", row["count"], count[key])
        same(where + f"idle {key}", row["total_ns"], want.pop(key, 0))
        same(where + "denominators", (row["idle_ns"], row["window_ns"]), (idle, window))
        if idle:
            same(where + f"share {key}", row["share_of_idle"], row["total_ns"] / idle)
    same(where + "idle causes", dict(+want), {})
    # A rank without kernels is a CPU rank to the identity.
    if not several and not rank.mpi and any(not op.copy for op in rank.ops):
        exposed = sum(max(0, min(g.end, e) - max(g.begin, b)) for g in gaps for b, e in rank.awaited)
        same(where + "idle of the identity", [idle - exposed], [checker.idle[number]])
    listed = []
    for row in checker.table("idle-gaps", number):
        parts = {c[:-3]: v for c, v in row.items() if c.endswith("_ns") and c[:-3] not in ("at", "gap", "begin", "of_it") and v}
        listed.append((row["begin_ns"], row["gap_ns"], row["device"], sorted(parts.items())))
        same(where + "cause", row["of_it_ns"], max(parts.values(), default=0))
    same(where + "idle-gaps", sorted(listed),
         sorted((g.begin, g.end - g.begin, g.device, sorted((+sums(g.parts)).items())) for g in gaps))
    after = sum(row["idle_after_ns"] for row in checker.table("syncs", number))
    same(where + "idle after syncs", after,
         sum(p.end - p.begin for g in gaps for p in g.parts if p.blocking is not None))
    same(where + "syncs", sum(row["count"] for row in checker.table("syncs", number)), len(rank.blocking))
    for row in checker.table("launch-bound", number):
        inside = [(b, e) for i, b, e in checker.steps[number] if i == row["step"]] or windows
        device = row["device"] if row["device"] is not None else rank.devices()[0]
        of_step = lambda kinds: sum(max(0, min(p.end, e) - max(p.begin, b)) for g in gaps if g.device == device
                                    for p in g.parts for b, e in inside if kinds is None or p.kind in kinds)
        same(where + f"step {row['step']} idle", row["idle_ns"], of_step(None))
        same(where + f"step {row['step']} limited", row["launch_limited_ns"], of_step(LAUNCH_LIMITED))
        same(where + f"step {row['step']} input", row["input_ns"], of_step(("input",)))
        same(where + f"step {row['step']} sync", row["sync_ns"], of_step(("sync",)))
