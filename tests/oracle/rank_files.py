"""make_run against the oracle's own simulation: same rows, same nanoseconds."""


def compare(wanted, read):
    """Activities of the simulation against those of the rank files: (lines about what differs, number of rows)"""
    bad, rows = [], 0

    def same(what, got, want):
        nonlocal rows
        rows += len(want)
        if got != want:
            first = next((i for i, (g, w) in enumerate(zip(got, want)) if g != w), min(len(got), len(want)))
            bad.append(f"{what}: {len(got)} and {len(want)} rows, first difference at {first}: "
                       f"{got[first:first + 1]} oracle {want[first:first + 1]}")

    def key(op):
        if op.get("p2p"):
            return (1, op["message"], op["receive"], op["mode"], op["begin"], op["end"])
        return (0, op["seq"], op["start"], op["kind"], op["mode"], op["bytes"], op["members"], op["root"] if op["kind"] in (6, 7, 8, 9) else -1,
                op["begin"], op["post_end"], op["last_incomplete"] or 0, op["wait_begin"] or 0, op["end"] or 0)

    def wait(w):
        return tuple(-1 if w[name] is None else w[name] for name in ("begin", "end", "kind", "waker", "woken", "others_cpu", "timed_out"))

    found = {a.rank: a for a in read}
    if set(found) != {want.rank for want in wanted}:
        bad.append(f"files of ranks {sorted(found)}")
        return bad, 0
    for want in wanted:
        got, where = found[want.rank], f"rank {want.rank} "
        same(where + "calls", sorted(got.all_calls), sorted(want.all_calls))
        same(where + "training calls", sorted(got.training_calls), sorted(want.training_calls))
        same(where + "input ranges", sorted(got.inputs), sorted(want.inputs))
        same(where + "waits", sorted(map(wait, got.waits)), sorted(map(wait, want.waits)))
        same(where + "kernels", sorted(got.kernels), sorted(want.kernels))
        same(where + "copies", sorted(got.copies), sorted(want.copies))
        same(where + "operations", sorted(map(key, got.ops)), sorted(map(key, want.ops)))
    if rows == 0:
        bad.append("no rows to compare")
    return bad, rows
