"""What must hold of the views of any run. Each gives its mismatches in words."""

import re

from views import TERMS, flags_of, lower_median, lower_quantile, nanoseconds


def near(shown, ns):
    value, half = nanoseconds(shown)
    return abs(value - ns) <= half


def nearest(lengths, ns):
    """Of two that are as near the shorter one counts only if it is nearer."""
    return min(lengths, key=lambda each: (abs(each - ns), -each))


def step_lengths(v):
    """Mean, quantiles, denominators: one length per step, of which the headline is the mean."""
    s, usable = v.json["summary"], v.usable
    if s["step_ns_mean"] is None:
        if usable:
            yield "usable steps and no mean"
        return
    lengths = [step["step_ns"] for step in usable]
    if s["step_ns_median"] != s["job_step_ns_median"]:
        yield f"step_ns_median {s['step_ns_median']}, job_step_ns_median {s['job_step_ns_median']}"
    if sum(s[term] for term in TERMS) != s["step_ns_mean"]:
        yield f"terms sum to {sum(s[term] for term in TERMS)}, the step is {s['step_ns_mean']}"
    for what, known, shown in (("mean", sum(lengths) // len(lengths), s["step_ns_mean"]),
                               ("median", lower_median(lengths), s["step_ns_median"]),
                               ("shortest", min(lengths), s["job_step_ns_min"]),
                               ("p10", lower_quantile(lengths, 0.1) if len(lengths) >= 10 else None, s["job_step_ns_p10"]),
                               ("p99", lower_quantile(lengths, 0.99) if len(lengths) >= 100 else None, s["job_step_ns_p99"]), ("longest", max(lengths), s["job_step_ns_max"])):
        if known != shown:
            yield f"{what} of steps[] is {known}, the summary says {shown}"
    for step in usable:
        cells = [sum(cell[term] for term in TERMS) for cell in step["ranks"]]
        if sum(cells) // len(cells) != step["step_ns"]:
            yield f"step {step['index']}: mean of ranks {sum(cells) // len(cells)}, step_ns {step['step_ns']}"


def parts_of_ranks(v):
    """Each rank's terms sum to its window; the job's are their means."""
    s = v.json["summary"]
    for row in v.json["ranks"]:
        if sum(row[term] for term in TERMS) != row["span_ns"]:
            yield f"rank {row['rank']}: terms do not sum to {row['span_ns']}"
    for step in v.json["steps"]:
        for cell in step["ranks"]:
            if sum(cell[term] for term in TERMS) != cell["end_ns"] - cell["begin_ns"]:
                yield f"step {step['index']} rank {cell['rank']}: terms do not sum to its window"
    of = [cell for step in v.usable for cell in step["ranks"]] or v.json["ranks"]
    for term in TERMS:
        exact = sum(cell[term] for cell in of) / max(1, len(of))
        if of and abs(s[term] - exact) >= 2:  # Rounded for each step, and once more over steps.
            yield f"{term}: summary {s[term]}, mean of steps and ranks {exact}"


def headline(v):
    """The text's STEP and its parts are the JSON's."""
    s = v.json["summary"]
    line = re.search(r"  (STEP|WINDOW)  (\S+ \S+)( mean| on average|)(?:   \((median [^)]*)\))?", v.text)
    if v.step_ns <= 0:
        return
    if line is None:
        yield "no headline"
        return
    if not near(line.group(2), v.step_ns):
        yield f"text {line.group(2)}, JSON {v.step_ns}"
    keys = {"median": "median", "shortest": "min", "p10": "p10", "p99": "p99", "longest": "max"}
    for name, shown in re.findall(r"(\w+) ([0-9.]+ \w+)", line.group(4) or ""):
        if not near(shown, s["job_step_ns_" + keys[name]]):
            yield f"text {name} {shown}, JSON {s['job_step_ns_' + keys[name]]}"
    names = {"compute": "compute_ns", "blocked": "blocked_ns", "exposed transfer": "exposed_transfer_ns", "waiting": "exposed_wait_ns",
             "exposed, moved in Wait": "exposed_unsplit_ns", "exposed, unsplit": "exposed_unsplit_ns",
             "exposed copy": "exposed_copy_ns", "idle": "idle_ns"}
    legend = v.text[line.end():v.text.find("WHAT TO FIX") if "WHAT TO FIX" in v.text else None].split("RANKS")[0]
    found = {}
    for name, key in names.items():
        if match := re.search(rf"\S {name} ([0-9.]+ (?:ns|us|ms|s)) ", legend):
            found[key] = match.group(1)
    for key in TERMS:
        if (key in found) != (s[key] > 0) or (key in found and not near(found[key], s[key])):
            yield f"{key}: text {found.get(key)}, JSON {s[key]}"


def ranks_of_the_text(v):
    """The ranks' rows average to the STEP above them."""
    ranks, s = v.json["ranks"], v.json["summary"]
    head = re.search(r"^  RANKS  ms.*$", v.text, re.M)
    if head is None or len(ranks) > 16:
        return
    names = [name for name in head.group(0).split()[2:] if name not in ("last", "arrives", "late", "(median)")]
    rows = [line.split() for line in v.text[head.end():].strip("\n").split("\n")[:len(ranks)]]
    keys = {"compute": "compute_ns", "blocked": "blocked_ns", "transfer": "exposed_transfer_ns", "waiting": "exposed_wait_ns", "unsplit": "exposed_unsplit_ns",
            "copy": "exposed_copy_ns", "idle": "idle_ns"}
    for i, name in enumerate(names):
        first = next(k for k in range(1, len(rows[0])) if re.fullmatch(r"[0-9.]+", rows[0][k])) if rows else 0
        cells = [row[first + i] for row in rows]
        if "-" in cells:
            continue
        # A digit is worth 0.01, 0.1 or 1 ms, by the size of the figure.
        doubt = sum(0.5 * 10 ** -(len(cell.split(".")[1]) if "." in cell else 0 if cell != "0" else 2) for cell in cells) / len(cells)
        mean = sum(map(float, cells)) / len(cells)
        if abs(mean - s[keys[name]] / 1e6) > doubt + 1e-5:
            yield f"{name}: rows average to {mean} ms, STEP says {s[keys[name]]} ns"


def gains(v):
    """No gain is longer than the step."""
    for finding in v.json["findings"]:
        saves = finding["saves_ns_per_step"]
        whole = v.whole_of(finding)
        if saves is not None and not 0 <= saves <= whole:
            yield f"{finding['id']} saves {saves} of {whole}"
        if finding.get("saves_share") is not None and not 0 <= finding["saves_share"] <= 1:
            yield f"{finding['id']} saves a share of {finding['saves_share']}"


def who_was_last(v):
    """One count of last arrivals, one denominator."""
    arrivals = {row["rank"]: row for row in v.json["arrivals"]}
    for row in v.json["ranks"]:
        of = arrivals.get(row["rank"])
        if of is None or not of.get("collectives"):
            continue
        if of["last"] + of["ties"] > of["collectives"]:
            yield f"rank {row['rank']}: last in {of['last']}, {of['ties']} ties, of {of['collectives']}"
        if row["last_fraction"] is not None and abs(row["last_fraction"] - of["last"] / of["collectives"]) > 1e-9:
            yield f"rank {row['rank']}: last_fraction {row['last_fraction']}, {of['last']} of {of['collectives']}"
    for finding in v.json["findings"]:
        for rank, count in re.findall(r"rank (\d+) came last in ([\d ]+?) of", finding["evidence"]) + \
                re.findall(r", rank (\d+) in (\d+)", finding["evidence"]):
            if int(count.replace(" ", "")) != arrivals[int(rank)]["last"]:
                yield f"{finding['id']}: rank {rank} last in {count}, arrivals {arrivals[int(rank)]['last']}"


def collectives(v):
    """Waits of the JSON, the page and the export: the mean over members, and who waits longest."""
    rows, page = v.json["collectives"], v.page["collectives"]["rows"]
    key = lambda row: (row["op"], row["bytes"], row["count"], row["wait_ns_median"] or -1, row["transfer_ns_median"] or -1)
    if len(rows) == v.page["collectives"]["all"] == len(page) and sorted(map(key, rows)) != sorted(map(key, page)):
        yield "the page's rows are others"
    for row in rows:
        if row["wait_ns_median"] is None:
            continue
        if row["longest_wait_ns_median"] is not None and row["longest_wait_ns_median"] < row["wait_ns_median"]:
            yield f"{row['op']}: the longest wait {row['longest_wait_ns_median']} is below the mean {row['wait_ns_median']}"
    waits = {}
    for member in v.exported["collective_ranks"]:
        if member["wait_ns"] is not None and member["wait_ns"] >= 0:
            waits.setdefault(member["collective"], []).append(member["wait_ns"])
    for i, instance in enumerate(v.exported["collectives"]):
        known = instance["wait_ns"] is not None and instance["wait_ns"] >= 0
        if known and instance["wait_ns"] != sum(waits[i]) // len(waits[i]):
            yield f"collective {i}: wait_ns {instance['wait_ns']}, mean of members {sum(waits[i]) // len(waits[i])}"


def page(v):
    """The page's data is the analysis'."""
    for key in ("summary", "run"):
        ours, theirs = v.json[key], v.page["analysis"].get(key)
        if theirs is None:
            continue
        for name, value in theirs.items():
            if name in ours and ours[name] != value:
                yield f"{key}.{name}: page {value}, JSON {ours[name]}"


def export(v):
    """The exported timeline's steps are the analysis'."""
    exported = {row["index"]: row for row in v.exported["steps"]}
    for step in v.json["steps"]:
        row = exported.get(step["index"])
        known = None if row is None or row["step_ns"] is None or row["step_ns"] < 0 else row["step_ns"]
        if known != step["step_ns"]:
            yield f"step {step['index']}: exported {known}, JSON {step['step_ns']}"


def diff(v):
    """A run compared with its baseline, which has whole ns, is the same, and as long as analyze says."""
    if v.json["summary"]["step_ns_mean"] is None:
        return
    if v.diff["verdict"] in ("worse", "better") or v.diff["regression"]:
        yield f"verdict {v.diff['verdict']}"
    for measure in v.diff["measures"]:
        if measure["name"] == "step_ns" and abs(measure["base"]["mean"] - v.json["summary"]["step_ns_mean"]) > 1:
            yield f"step {measure['base']['mean']}, analyze {v.json['summary']['step_ns_mean']}"
        if measure["difference"] is not None and abs(measure["difference"]) > (1e-9 if measure["name"].endswith("fraction") else 1):
            yield f"{measure['name']} differs by {measure['difference']}"


def replay(v):
    """What a replay measures are the same steps' lengths."""
    facts = v.json["replay"]
    if not facts or facts.get("measured_step_ns") is None or not v.usable:
        return
    lengths = {step["index"]: step["step_ns"] for step in v.usable}
    steps = [lengths[i] for i in range(facts["first_step"], facts["last_step"] + 1) if i in lengths]
    every = len(steps) == len(lengths)
    steps = steps[1:] or steps
    if not steps or v.json["truncated"]:
        return
    # Of a part of the steps each stands for those that are about as long.
    mean = sum(steps) / len(steps) if every else sum(nearest(steps, ns) for ns in lengths.values()) / len(lengths)
    if abs(facts["measured_step_ns"] - mean) > 1 + 1e-9 * mean:
        yield f"measured {facts['measured_step_ns']}, its steps' mean {mean}"


def tables(v):
    """Tables over the window add up to what the ranks have of it."""
    ranks = {row["rank"]: row for row in v.json["ranks"]}
    per_rank = {}
    for row in v.table("groups", "--rank", "all"):
        if isinstance(row["rank"], int):
            per_rank[row["rank"]] = per_rank.get(row["rank"], 0) + (row["exposed_ns"] or 0)
    for rank, exposed in per_rank.items():
        if exposed != ranks[rank]["exposed_comm_ns"]:
            yield f"groups, rank {rank}: exposed {exposed}, ranks[] {ranks[rank]['exposed_comm_ns']}"
    if not v.gpu:
        return
    parts = ["cpu_ns", "data_loading_ns", "compute_ns", "communication_ns", "copy_ns", "launch_ns", "kernel_gap_ns", "sync_ns", "other_ns"]
    for row in v.table("critical-path", "--rank", "all"):
        total = sum(row[part] or 0 for part in parts)
        if row["window_ns"] is not None and total != row["window_ns"]:
            yield f"critical-path, step {row['step']}: parts {total}, window {row['window_ns']}"
    steps = {step["index"]: {cell["rank"]: cell for cell in step["ranks"]} for step in v.json["steps"]}
    for row in v.table("launch-bound", "--rank", "all"):
        if not isinstance(row["rank"], int) or row["step"] is None:
            continue
        if row["busy_ns"] + row["idle_ns"] != row["window_ns"]:
            yield f"launch-bound, step {row['step']}: busy and idle are not the window"
        cell = steps.get(row["step"], {}).get(row["rank"])
        if cell and row["window_ns"] != cell["end_ns"] - cell["begin_ns"]:
            yield f"launch-bound, step {row['step']}: window {row['window_ns']}, steps[] {cell['end_ns'] - cell['begin_ns']}"


# Words of a program or a profiler that a job may not have, and what must be known for them to be said outright.
TORCH = re.compile(r"torch\.|DataLoader|PYTORCH_|prof\.step|record_function|non_blocking=")
OF_LOCKSTEP = re.compile(r"lockstep run\b|lockstep_step|lockstep_range")
FLAGS_OF_NSYS = {"--trace", "--delay", "--capture-range", "--gpuctxsw", "--cuda-event-trace", "--cuda-graph-trace", "--include-blobs"}
COMMANDS = ["run", "analyze", "import", "export", "whatif", "diff", "report", "merge", "doctor"]
OTHERS = {"--bind-to"}  # mpirun's.


def advice(v):
    """Advice is for what recorded the run, in words of its program, and names no flag that there is not."""
    for where, text in v.sentences.items():
        for command, rest in re.findall(r"lockstep (" + "|".join(COMMANDS) + r")\b([^;.]*)", text):
            for flag in re.findall(r"--[a-z][a-z-]+", rest):
                if flag not in flags_of(command) | FLAGS_OF_NSYS:
                    yield f"{where}: lockstep {command} has no {flag}"
        known = set().union(*(flags_of(command) for command in COMMANDS)) | OTHERS
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text):
            if flag not in known and not (v.source == "nsys" and flag in FLAGS_OF_NSYS):
                yield f"{where}: {flag} is no flag of what recorded this"
        if v.source != "lockstep" and OF_LOCKSTEP.search(text):
            yield f"{where}: Lockstep's recorder for a run of {v.source}: {text}"
        if v.source != "nsys" and "nsys" in text:
            yield f"{where}: Nsight Systems for a run of {v.source}: {text}"
        if v.source == "lockstep" and not v.uses_torch and TORCH.search(text):
            yield f"{where}: PyTorch for a job that has none: {text}"
        if not v.gpu and re.search(r"\b(GPU|CUDA|NCCL)", text):
            yield f"{where}: a GPU for a job that has none: {text}"
        if v.source == "nsys" and not v.torch_kernels and TORCH.search(text.split("in PyTorch")[0]):
            yield f"{where}: PyTorch, which nothing says is there: {text}"
        if v.source == "nsys" and v.torch_kernels is False and TORCH.search(text):
            yield f"{where}: PyTorch for a program that launches none of its kernels: {text}"


def idle(v):
    """Idle time is told in full, and a run that is idle is not called healthy."""
    s, causes = v.json["summary"], v.json["idle_causes"]
    if s["idle_ns"] is None or v.step_ns <= 0:
        return
    told = {finding["id"] for finding in v.json["findings"]}
    for cause in causes:
        if cause["finding"] in told and not cause["told"]:
            yield f"{cause['cause']}: {cause['finding']} is there and does not count"
    rest = min(s["idle_ns"], sum(cause["ns"] for cause in causes if not cause["told"]))
    if len(told) < 5 and rest >= 0.02 * v.step_ns and "idle.other" not in told:
        yield f"{rest} ns of {v.step_ns} idle of which nothing tells"
    if s["idle_ns"] >= 0.1 * v.step_ns and re.search("[nN]othing found", v.json["verdict"]):
        yield f"idle for {s['idle_ns']} of {v.step_ns}: {v.json['verdict']}"
    if not v.gpu and causes and sum(cause["ns"] for cause in causes) != s["idle_ns"]:
        yield f"causes {sum(cause['ns'] for cause in causes)}, idle {s['idle_ns']}"


def exposed(v):
    """What a sentence says is exposed is what STEP shows."""
    s = v.json["summary"]
    if s["step_ns_mean"] is None:
        return
    shown = s["exposed_transfer_ns"] + s["exposed_unsplit_ns"]
    for finding in v.json["findings"]:
        match = re.match(r"Communication is exposed for ([0-9.]+ (?:ns|us|ms|s)) ", finding["headline"])
        others = {"p2p.late_sender", "p2p.late_receiver", "progress.wait_only"} & {f["id"] for f in v.json["findings"]}
        if match and not others and not near(match.group(1), shown):
            yield f"{finding['headline']} STEP: {shown}"


def sizes(v):
    """A size that is not known is no 0."""
    for row in v.json["collectives"]:
        if row["bytes"] == 0 and row["op"] != "barrier" and v.gpu:
            yield f"{row['op']} of 0 bytes"


ALL = [step_lengths, parts_of_ranks, headline, ranks_of_the_text, gains, who_was_last, collectives, page, export, diff, replay, tables, advice, idle, exposed, sizes]
