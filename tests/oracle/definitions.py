"""docs/definitions.md in Python: where the time of a window went.

Sets are sorted lists of disjoint half-open (begin, end) in integer ns.
"""

import bisect
import math

SPLIT_KINDS = (1, 2, 3, 4, 5, 13, 14)
GIVES_NOTHING, TAKES_NOTHING = 2, 4  # Bits of collectives.uneven.
BARRIER, FINALIZE, FENCE, ROOT_SENDS, ROOT_RECEIVES = 5, 13, 14, (6, 9), (7, 8)
TERMS = ("compute_ns", "blocked_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns", "exposed_copy_ns", "idle_ns")
LATE = ("late_sender_ns", "late_receiver_ns")
OF_KINDS = {"blocked_sleep_ns": (1,), "blocked_lock_ns": (2, 3, 4), "blocked_python_ns": (5,), "blocked_file_ns": (8,),
            "blocked_socket_ns": (9,)}  # BlockedKind
CONDITION, SEMAPHORE = 3, 4
WORK_OF_OTHERS = (2, 3, 4, 6)  # Kinds of waits in which other threads may compute for the one that waits.
COLUMNS = TERMS + tuple(OF_KINDS) + ("blocked_unplaced_ns", "helper_wait_ns", "message_wait_ns") + ("comm_ns", "overlap_ns", "comm_high_ns", "overlap_high_ns", "copy_ns", "mpi_other_ns", "mpi_io_ns",
                   "mpi_rma_ns", "mpi_setup_ns") + LATE


def union(intervals):
    out = []
    for b, e in sorted(intervals):
        if e <= b:
            continue
        if out and b <= out[-1][1]:
            if e > out[-1][1]:
                out[-1] = (out[-1][0], e)
        else:
            out.append((b, e))
    return out


def clip(s, b, e):
    at = bisect.bisect_right(s, (b,)) - 1
    at = max(at, 0)
    out = []
    while at < len(s) and s[at][0] < e:
        x, y = max(s[at][0], b), min(s[at][1], e)
        if x < y:
            out.append((x, y))
        at += 1
    return out


def length(s):
    return sum(e - b for b, e in s)


def intersect(a, b):
    out, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        x, y = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if x < y:
            out.append((x, y))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return out


def subtract(a, b):
    out, j = [], 0
    for x, y in a:
        while j < len(b) and b[j][1] <= x:
            j += 1
        k = j
        while k < len(b) and b[k][0] < y:
            if b[k][0] > x:
                out.append((x, b[k][0]))
            x = max(x, b[k][1])
            k += 1
        if x < y:
            out.append((x, y))
    return out


class Activity:
    """What one rank did, on its own clock."""

    def __init__(self, rank, gpu):
        self.rank, self.gpu = rank, gpu
        self.training_calls, self.all_calls, self.other_calls, self.inputs = [], [], [], []
        self.io_calls, self.rma_calls, self.setup_calls = [], [], []  # Parts of other_calls.
        self.late_senders, self.late_receivers = [], []
        self.message_waits = []  # (begin, end, thread; None: on the GPU) of both.
        self.ops = []       # Dicts as in simulate.Run.row; `comm` names the communicator on every rank alike.
        self.kernels, self.copies = [], []
        self.life_end = 0   # For operations that never completed.
        self.training = 0   # Its thread; operations without `thread` are its own.
        self.waits = []     # Dicts of the training thread: begin, end, kind, waker, woken (None: not seen), others_cpu, timed_out.
        self.steps = []     # (begin, end, complete, CPU time of the training thread, that of its process's others, or None)
        self.delays = []    # (time, run-queue delay until then) of the training thread.
        self.to_cluster = self.to_local = lambda t: t
        self.error = lambda t: 0


def match(activities):
    """Instances: key -> rows over ranks. Fills each row's `arrival`, `instance`."""
    instances = {}
    for a in activities:
        for op in a.ops:
            op["rank"] = a.rank
            op["arrival"] = a.to_cluster(op["begin"])
            if not op.get("p2p"):
                instances.setdefault((op["comm"], op["function"], op["seq"], op["start"]), []).append(op)
    return instances


def set_limits(activities, instances):
    """`limit`: the arrival that a row cannot have ended before, cluster time; None if it waits for nobody."""
    of_rank, out = {a.rank: a for a in activities}, []
    error = lambda r: of_rank[r["rank"]].error(r["begin"])
    for key, rows in instances.items():
        kind = rows[0]["kind"]
        last = max(r["arrival"] for r in rows)
        size = max(r["bytes"] for r in rows)
        moves, uneven = size > 0 or kind in (BARRIER, FINALIZE, FENCE), any(r.get("uneven") for r in rows)
        agree = all(r["kind"] == kind for r in rows) and (
            kind in ROOT_RECEIVES or kind in (9, 11) or uneven or len({r["bytes"] for r in rows}) == 1)
        split = kind in SPLIT_KINDS and rows[0]["splittable"] and moves and agree
        if kind in (FINALIZE, FENCE):  # They wait for all only if nobody left before the last one came.
            split = split and all(of_rank[r["rank"]].to_cluster(r["end"]) + 2 * max(map(error, rows)) >= last for r in rows)
        whole = len(rows) >= rows[0]["members"]
        root = next((r for r in rows if r["root"] == r["rank"]), None)
        gives = lambda r: not r.get("uneven", 0) & GIVES_NOTHING
        takes = lambda r: not r.get("uneven", 0) & TAKES_NOTHING
        awaited_for = max((r["arrival"] for r in rows if gives(r)), default=None)
        if split and awaited_for is not None:
            last = awaited_for
        limit = lambda r: r["arrival"] if awaited_for is None else max(r["arrival"], awaited_for)
        for r in rows:
            r["limit"], r["whole"], r["doubtful"] = None, whole, False
            if split and takes(r):
                r["limit"] = limit(r)
                if not uneven:
                    continue
                end = of_rank[r["rank"]].to_cluster(r["end"]) if r["end"] is not None else None
                if end is not None and r["limit"] - end > error(r) + max(map(error, rows)):
                    r["limit"] = None  # It left without them.
                # Who gives nothing came while it was in, after all others.
                r["doubtful"] = any(o is not r and not gives(o) and o["arrival"] > last and
                                    (end is None or o["arrival"] < end) for o in rows)
            elif root is not None and rows[0]["splittable"] and moves and agree:
                if kind in ROOT_SENDS and r is not root and takes(r):
                    r["limit"] = root["arrival"]
                elif kind in ROOT_RECEIVES and r is root:
                    r["limit"] = limit(r)
        if kind == FINALIZE:  # What comes after the wait is no transfer.
            for r in rows:
                r["end"] = r["begin"] if r["limit"] is None else max(r["begin"], of_rank[r["rank"]].to_local(r["limit"]))
        # The last arriver, if its margin is beyond the clocks' doubt.
        by_arrival = sorted([r for r in rows if (takes(r) or r is root if kind in ROOT_SENDS else gives(r) or r is root)],
                            key=lambda r: -r["arrival"])
        if split and len(by_arrival) == 1:  # Who waited for it came second.
            by_arrival += sorted([r for r in rows if not gives(r) and takes(r)], key=lambda r: -r["arrival"])[:1]
        last_rank, charge = -1, 0
        awaited = split or (by_arrival and root is not None and kind in ROOT_SENDS and by_arrival[0] is root) or \
            (root is not None and kind in ROOT_RECEIVES and by_arrival[0] is not root)
        if whole and len(by_arrival) > 1 and awaited:
            one, two = by_arrival[:2]
            if one["arrival"] - two["arrival"] > 2 * (error(one) + error(two)):
                last_rank, charge = one["rank"], one["arrival"] - two["arrival"]
        out.append(dict(key=key, rows=rows, split=split, whole=whole, last_arrival=last, last_rank=last_rank,
                        charge=charge))
    return out


def find_ready(activities):
    """op["ready"]: when the other rank was ready to move a message, cluster time: its post; or its next call, where messages of
    that size end soon after it, so that they move only while both ranks are inside MPI."""
    halves, calls, pairs, seen = {}, {}, [], {}
    for a in activities:
        spans = []
        for op in a.ops:
            if op["mode"] == 3:
                continue
            post_end = op["post_end"] if op["post_end"] is not None else op["begin"]
            spans.append((a.to_cluster(op["begin"]), a.to_cluster(max(op["begin"], post_end))))
            if op["wait_begin"] is not None and op["wait_begin"] != op["begin"]:
                spans.append((a.to_cluster(op["wait_begin"]), a.to_cluster(op["end"] if op["end"] is not None else op["wait_begin"])))
            if op.get("p2p") and op.get("message") is not None:
                halves[(op["comm"], op["receive"]) + op["message"]] = (a, op)
        calls[a.rank] = sorted(spans)

    def moves_in(rank, since, moved):
        spans = calls[rank]
        at = bisect.bisect_left(spans, (since,))
        if at < len(spans) and spans[at][0] < moved:
            return spans[at][0]
        return spans[at - 1][0] if at > 0 and since <= spans[at - 1][1] else None

    of_call = {}  # Of the messages of a call: when their other ranks were ready.

    def explained(a, op, since, end):
        """Another message of the call says as well why it ended then."""
        call = of_call[a.rank, op.get("thread", 0), op["wait_begin"], op["end"]]
        others = [ready for ready, other in call if other is not op and ready < end]
        return bool(others) and max(others) > since and 10 * (end - max(others)) <= end - since

    def usable(op):
        return op.get("completed", True) and op["end"] is not None and op["wait_begin"] is not None and op["mode"] != 3
    for key, (a, op) in halves.items():
        _, other = halves.get((key[0], not key[1]) + key[2:], (None, None))
        if other is not None and usable(op):
            of_call.setdefault((a.rank, op.get("thread", 0), op["wait_begin"], op["end"]), []).append((other["arrival"], op))
    for key, (to, receive) in list(halves.items()):
        if not key[1]:
            continue
        start, send = halves.get((key[0], False) + key[2:], (None, None))
        if send is None:
            continue
        send["ready"], receive["ready"] = receive["arrival"], send["arrival"]
        if start is to or not usable(send) or not usable(receive):
            continue
        both = max(send["arrival"], receive["arrival"])
        send_end, receive_end = start.to_cluster(send["end"]), to.to_cluster(receive["end"])
        takes = moves_in(to.rank, both, send_end)
        if takes is None:
            continue
        size = receive.get("bytes", 0).bit_length()
        if max(both, start.to_cluster(send["wait_begin"])) < takes < send_end:
            soon = None if explained(start, send, both, send_end) else 10 * (send_end - takes) <= send_end - both
            pairs.append((send, (size, False), takes, soon))
        gives = moves_in(start.rank, max(both, takes), receive_end)
        if gives is not None and max(both, to.to_cluster(receive["wait_begin"])) < gives < receive_end:
            soon = None if explained(to, receive, both, receive_end) else 10 * (receive_end - gives) <= receive_end - both
            pairs.append((receive, (size, True), gives, soon))
    for _, kind, _, soon in pairs:
        seen.setdefault(kind, []).extend([soon] if soon is not None else [])
    for op, kind, ready, _ in pairs:
        if sum(seen[kind]) >= 3 and 10 * sum(seen[kind]) >= 9 * len(seen[kind]):
            op["ready"] = ready


def late_partners(activities):
    """Fills late_senders and late_receivers: where a call waited because the other half of a message was not there.

    All messages that one call completes have the call's begin and end. After match().
    """
    halves = {}
    find_ready(activities)
    for a in activities:
        for op in a.ops:
            if op.get("p2p") and op.get("message") is not None:
                halves[(op["comm"], op["receive"]) + op["message"]] = (a, op)
    for a in activities:
        calls = {}
        for op in a.ops:
            if op.get("p2p") and op.get("message") is not None and op["wait_begin"] is not None and op["end"] is not None:
                calls.setdefault((op.get("thread", 0), op["wait_begin"], op["end"]), []).append(op)
        for (_, begin, end), ops in calls.items():
            at = begin
            for receive, found in ((True, a.late_senders), (False, a.late_receivers)):
                latest = None
                for op in ops:
                    other, half = halves.get((op["comm"], not receive) + op["message"], (None, None))
                    ready = None if half is None else op.get("ready", half["arrival"])
                    if op["receive"] != receive or half is None or ready <= a.to_cluster(begin):
                        continue
                    until = a.to_local(ready)
                    if not receive and until >= end:
                        continue  # It ended without the receive: it was buffered.
                    doubt = 2 * (a.error(begin) + other.error(other.to_local(ready)))
                    if latest is None or min(until, end) > latest[0]:
                        latest = (min(until, end), doubt)
                if latest is not None and latest[0] - at > latest[1]:
                    found.append((at, latest[0]))
                    a.message_waits.append((at, latest[0], None if ops[0]["mode"] == 3 else ops[0].get("thread", a.training)))
                    at = latest[0]


def lower_median(values):
    return sorted(values)[(len(values) - 1) // 2] if values else None


def split_rows(activity):
    """Every operation's parts on the rank's clock, and its wait, transfer and censoring."""
    inside = union(activity.all_calls)
    for op in activity.ops:
        end = op["end"] if op["end"] is not None else max(activity.life_end, op["begin"])
        begin = op["begin"]
        op["flight"], op["wait_part"], op["transfer_part"] = (begin, end), None, None
        op["wait"] = op["transfer"] = None
        op["censored"] = False
        if op.get("p2p"):
            if op["receive"] and op.get("ready") is not None and op["mode"] != 3:
                begin = min(max(begin, activity.to_local(op["ready"])), end)
            op["flight"] = (begin, end)
            continue
        if op["limit"] is None:
            continue
        turn = max(min(activity.to_local(op["limit"]), end), begin)
        op["turn"] = turn
        op["wait_part"] = (begin, turn)
        op["censored"] = op["end"] is None or not op["whole"] or op["doubtful"]
        if op["mode"] in (1, 2) and not op["censored"]:
            low = max([turn] + [t for t in (op["last_incomplete"], op["wait_begin"]) if t is not None])
            low = min(low, end)
            high = end - turn
            moved = length(clip(inside, turn, end))
            op["censored"] = high > 0 and (10 * (end - low) >= high or 10 * (high - moved) >= high)
        op["wait"] = turn - begin
        if not op["censored"]:
            op["transfer"] = end - turn
            op["transfer_part"] = (turn, end)


def by_others(a):
    """(thread, begin, end) of blocking collectives and ended messages of the process's other threads."""
    for op in a.ops:
        if op.get("thread", a.training) == a.training or op["mode"] in ((1, 2, 3) if not op.get("p2p") else (3,)):
            continue
        if not op.get("p2p") or op["end"] is not None:
            yield op["thread"], op["begin"], math.inf if op["end"] is None else op["end"]


def find_blocked(a):
    """(awaited, own: [(begin, end, kind)], computed) of a CPU rank's recorded waits."""
    if a.gpu or not a.waits:
        return [], [], []
    carried = list(by_others(a))
    apart = union(a.training_calls + a.inputs)

    def awaits(w):
        return (w["kind"] in (CONDITION, SEMAPHORE) and not w["timed_out"] and w["woken"] is not None and w["waker"] is not None and
                any(thread == w["waker"] and begin <= w["woken"] and end > w["begin"] for thread, begin, end in carried))
    waits = sorted(a.waits, key=lambda w: w["begin"])
    awaited = subtract(union([(w["begin"], w["end"]) for w in waits if awaits(w)]), apart)
    taken, own, computed, until = union(apart + awaited), [], [], -math.inf
    for w in waits:
        if awaits(w):
            continue
        begin, end = max(w["begin"], until), w["end"]
        until = max(until, end)
        worked = begin + ((w["others_cpu"] or 0) if w["kind"] in WORK_OF_OTHERS else 0)
        rest = subtract([(begin, end)], clip(taken, begin, end)) if begin < end else []
        computed += clip(rest, begin, worked)
        own += [(b, e, w["kind"]) for b, e in clip(rest, worked, end)]
    return awaited, own, union(computed)


class Breakdown:
    """Sets of one rank, ready for any window."""

    def __init__(self, a):
        self.gpu = a.gpu
        self.awaited, own, self.computed = find_blocked(a)
        self.own_blocked = union([(b, e) for b, e, _ in own])
        self.of_kind = {name: union([(b, e) for b, e, kind in own if kind in kinds]) for name, kinds in OF_KINDS.items()}
        self.carried = union([(b, e) for _, b, e in by_others(a) if e != math.inf])
        self.busy = union(a.kernels) if a.gpu else union(a.training_calls + a.inputs)
        certain = [op["flight"] for op in a.ops if op["mode"] in (0, 3)]
        possible = [op["flight"] for op in a.ops if op["mode"] in (1, 2)]
        self.flight = union(certain + possible)
        self.moving = union(certain + intersect(union(possible), union(a.all_calls)))
        self.wait = union([op["wait_part"] for op in a.ops if op["wait_part"]])
        own = union([(b, e) for b, e, thread in a.message_waits if thread in (None, a.training)])
        others = union([(b, e) for b, e, thread in a.message_waits if thread not in (None, a.training)])
        self.message = union(own + intersect(others, self.awaited))
        self.transfer = union([op["transfer_part"] for op in a.ops if op["transfer_part"]])
        self.copy = union(a.copies)
        self.other, self.io, self.rma = union(a.other_calls), union(a.io_calls), union(a.rma_calls)
        self.setup = union(a.setup_calls)
        self.late = {"late_sender_ns": union(a.late_senders), "late_receiver_ns": union(a.late_receivers)}

        self.unplaced = self.find_unplaced(a)

    def find_unplaced(self, a):
        """[(begin, end, ns, of which hidden communication)] of steps: compute that the CPU clock contradicts."""
        if self.gpu:
            return []
        times = [t for t, _ in a.delays]

        def before(t):
            at = bisect.bisect_right(times, t)
            return a.delays[at - 1] if at else None

        def since(t):
            at = bisect.bisect_left(times, t)
            return a.delays[at] if at < len(times) else None

        def line(t):
            (t0, v0), (t1, v1) = before(t), since(t)
            first = a.delays[0][1]
            return float(v0 - first) + (float(v1 - v0) * (float(t - t0) / float(t1 - t0)) if t1 > t0 else 0.0)
        rows, out = [], []
        for begin, end, complete, cpu, others in a.steps:
            if clip(self.carried, begin, end):  # They communicated for it.
                others = 0
            usable = complete and cpu is not None and others is not None and before(begin) and since(end)
            if not usable:
                rows.append([])
                continue
            terms = self.certain_terms(begin, end)
            workers = length(clip(self.computed, begin, end))
            off = max(0, terms["compute_ns"] - cpu - workers)
            grown = line(end) - line(begin)
            row = (begin, end, off, max(0, off - int(math.floor(grown + 0.5))), terms["overlap_ns"],
                   terms["compute_ns"] - cpu, workers, others)
            if rows and rows[-1] and rows[-1][-1][1] == begin:
                rows[-1].append(row)
            else:
                rows.append([row])
        for run in filter(None, rows):
            total = sum(row[3] for row in run)
            off, off_thread, workers, others = (sum(row[column] for row in run) for column in (2, 5, 6, 7))
            if others > workers:
                off = min(off, off_thread - others)
            certain = max(0, off - (since(run[-1][1])[1] - before(run[0][0])[1]))
            for begin, end, _, ns, hidden, *_ in run:
                if total > certain:
                    ns = int(float(ns) * float(certain) / float(total))
                out.append((begin, end, ns, min(ns, hidden)))
        return out

    def terms(self, b, e):
        out = self.certain_terms(b, e)
        for begin, end, ns, hidden in self.unplaced:
            if b <= begin and end <= e:
                out["compute_ns"] -= ns
                out["blocked_ns"] += ns
                out["blocked_unplaced_ns"] += ns
                out["overlap_ns"] -= hidden
        return out

    def certain_terms(self, b, e):
        if e <= b:
            return dict.fromkeys(COLUMNS, 0)
        window = [(b, e)]
        busy = clip(self.busy, b, e)
        awaited, own_blocked = clip(self.awaited, b, e), clip(self.own_blocked, b, e)
        compute = busy if self.gpu else subtract(window, union(busy + awaited + own_blocked))
        own = union(compute + own_blocked)
        flight = union(clip(self.flight, b, e) + subtract(clip(self.message, b, e), own))
        exposed = subtract(flight, own)
        apart = subtract(awaited, flight)
        transfer = intersect(exposed, clip(self.transfer, b, e))
        rest = subtract(exposed, transfer)
        wait = intersect(rest, union(clip(self.wait, b, e) + clip(self.message, b, e)))
        copy = clip(self.copy, b, e)
        exposed_copy = subtract(subtract(copy, union(own + awaited)), flight)
        hidden_high = intersect(flight, own)
        hidden = intersect(clip(self.moving, b, e), own)
        out = dict(compute_ns=length(compute), blocked_ns=length(own_blocked) + length(apart), blocked_unplaced_ns=0,
                   helper_wait_ns=length(intersect(awaited, exposed)), exposed_wait_ns=length(wait), exposed_transfer_ns=length(transfer),
                   message_wait_ns=length(subtract(wait, clip(self.wait, b, e))),
                   exposed_unsplit_ns=length(rest) - length(wait), exposed_copy_ns=length(exposed_copy),
                   comm_high_ns=length(flight), overlap_high_ns=length(hidden_high), overlap_ns=length(hidden),
                   comm_ns=length(exposed) + length(hidden), copy_ns=length(copy))
        for name, of_kind in self.of_kind.items():
            out[name] = length(clip(of_kind, b, e))
        out["blocked_lock_ns"] += length(apart)
        covered = union(own + apart + flight + copy)
        out["idle_ns"] = (e - b) - length(covered)
        idle = subtract(window, covered)
        io = intersect(idle, self.io)
        out["mpi_other_ns"], out["mpi_io_ns"] = length(intersect(idle, self.other)), length(io)
        out["mpi_rma_ns"] = length(subtract(intersect(idle, self.rma), io))
        out["mpi_setup_ns"] = length(intersect(idle, self.setup))
        out.update((name, length(clip(late, b, e))) for name, late in self.late.items())
        return out
