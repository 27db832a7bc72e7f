"""What must hold of prices, of intervals, and of what further tools and comparisons are given. Each gives its mismatches in words."""

import collections
import math
import re

from form_agreements import walk
from forms import shows, strict


# ---------------------------------------------------------------- one price of a straggler

def straggler_prices(v):
    """A straggler's price is the one that reports show: its finding's, and what whatif gains without it."""
    stragglers = v.json["stragglers"]
    named = [finding for finding in v.json["findings"] if finding["id"] == "straggler.arrival"]
    for row in stragglers:
        price, name = row["price_ns_per_step"], f"straggler {row['rank']}"
        if (price is None) != (row["priced_by"] is None):
            yield f"{name}: a price of {price} by {row['priced_by']}"
        whole = max([v.whole_of(finding) for finding in named] + [v.step_ns])
        if price is not None and not 0 <= price <= whole:
            yield f"{name}: a price of {price}, the step is {whole}"
        of = {"replay": row["replayed_saves_ns_per_step"], "waiting": row["saves_ns_per_step"]}.get(row["priced_by"])
        if price is not None and (of is None or max(0, of) != price):
            yield f"{name}: a price of {price} by {row['priced_by']}, which is {of}"
        # Whoever is named costs something: nobody is named for nothing.
        if price is not None and named and max(price, row["saves_ns_per_step"] or 0) <= 0:
            yield f"{name}: named, and costs nothing"
        if row["priced_by"] == "replay" and row["saves_ns_per_step"] == 0 and price > 0:
            yield f"{name}: saves_ns_per_step 0 beside a price of {price}"
    if not named or not stragglers:
        return
    finding, prices = named[0], [row["price_ns_per_step"] for row in stragglers]
    saves = finding["saves_ns_per_step"]
    if None in prices or saves is None:
        return
    if len(prices) == 1 and prices[0] != saves:
        yield f"a price of {prices[0]}, its finding {saves}"
    if max(prices) > saves:
        yield f"prices {prices}, their finding {saves}"
    if not finding["replayed"] or finding["intermittent"] or any(row["kind"] != "persistent" for row in stragglers):
        return
    # Over the same steps, so it is the same number.
    text = v.may_fail("whatif", v.run, "-q", "--json", "-", "--without-stragglers")
    if text is None:
        yield "whatif does not answer what analyze prices"
        return
    gain = strict(text)["answers"][0]["gain_ns"]
    if max(0, gain) != saves:
        yield f"the finding saves {saves}, whatif gains {gain}"


# ---------------------------------------------------------------- intervals

def widths(v):
    """An interval that is shown has a width: what is known exactly, or from too little, has none."""
    for document, content in v.documents.items():
        if document == "baseline":
            continue  # What diff computes from.
        for where, row in walk(document, content):
            if not isinstance(row, dict):
                continue
            for key, value in row.items():
                if key.endswith(("interval", "interval_ns")) and isinstance(value, list) and len(value) == 2 and None not in value:
                    yield from wide(f"{where}.{key}", *value)
            # Bounds of overlap are no interval: where communication moves is known of some of it.
            for low in [key for key in row if "low" in key.split("_") and not key.startswith("overlap")]:
                high = "_".join("high" if part == "low" else part for part in low.split("_"))
                if isinstance(row[low], (int, float)) and isinstance(row.get(high), (int, float)):
                    yield from wide(f"{where}.{low}", row[low], row[high])
    for where, text in v.texts.items():
        # In tables a dash is what is not known.
        between = "to" if where.startswith("--table") else "to|-"
        for match in re.finditer(rf"(?<![\d.])([+-]?\d[\d.]*(?: (?:ns|us|ms|s|%))?) +(?:{between}) +\1(?![\d.])", text):
            yield f"{where}: {match.group()}"


def wide(where, low, high):
    if low > high or (low == high and low != 0):
        yield f"{where}: from {low} to {high}"


# ---------------------------------------------------------------- Perfetto and OTF2

def perfetto_steps(v):
    """The steps of ui.perfetto.dev are those of the timeline, rank by rank, and its collectives are all there."""
    trace = v.perfetto
    if trace is None:
        return
    tracks = [s for s in trace.slices if s.pid >= 2 and s.track in ("steps", "steps (GPU)")]
    shown = {(s.pid - 2, s.name): s for s in tracks}
    rows = v.exported["step_ranks"]
    if len(tracks) != len(rows) or len(shown) != len(rows):
        yield f"perfetto: {len(tracks)} steps of ranks, CSV {len(rows)}"
    for row in rows:
        step = shown.get((row["rank"], f"step {row['index']}"))
        if step is None:
            yield f"perfetto: no step {row['index']} of rank {row['rank']}"
        # The one is in cluster time, the other the rank's own: their clocks drift apart by less than that.
        elif abs(step.end - step.begin - (row["end_ns"] - row["begin_ns"])) > 2 + 1e-4 * (row["end_ns"] - row["begin_ns"]):
            yield f"perfetto: step {row['index']} of rank {row['rank']} takes {step.end - step.begin}, CSV {row['end_ns'] - row['begin_ns']}"
        else:
            for term in ("compute_ns", "exposed_wait_ns", "idle_ns"):
                if (row[term] or 0) >= 0 and step.args.get(term, 0) != (row[term] or 0):
                    yield f"perfetto: step {row['index']} of rank {row['rank']}: {term} {step.args.get(term)}, CSV {row[term]}"
    collectives = [s for s in trace.of(-1, "collectives") if s.name not in ("wait for the last", "transfer")]
    if len(collectives) != len(v.exported["collectives"]):
        yield f"perfetto: {len(collectives)} collectives, CSV {len(v.exported['collectives'])}"


def otf2_events(v):
    """An archive for Vampir has an event for each row, as many of each name as the rank tables."""
    said = v.otf2
    if said is None:
        return
    entered, left, steps = collections.Counter(), 0, collections.Counter()
    for line in said.splitlines():
        match = re.match(r"(ENTER|LEAVE)\s+(\d+)\s+(\d+)\s+Region: (\".*\"|UNDEFINED)", line)
        if match is None:
            continue
        left += match.group(1) == "LEAVE"
        if match.group(1) == "ENTER":
            entered[int(match.group(2)) >> 24] += 1
            if step := re.match(r'"step (\d+)', match.group(4)):
                steps[int(step.group(1))] += 1
    if sum(entered.values()) != left:
        yield f"otf2: {sum(entered.values())} begins, {left} ends"
    rows = collections.Counter()
    for table in ("kernels", "copies", "api", "ranges", "mpi_calls", "mpi_requests"):
        for row in v.rank_tables.get(table, ()):
            rows[row["file_rank"]] += 1
    for row in v.exported["step_ranks"]:
        rows[row["rank"]] += 1
    for rank in rows | entered:
        if rows[rank] != entered[rank]:
            yield f"otf2: {entered[rank]} events of rank {rank}, tables {rows[rank]}"
    known = collections.Counter(row["index"] for row in v.exported["step_ranks"])
    if steps and steps != known:
        yield f"otf2: steps {steps}, CSV {known}"


PRICES = [straggler_prices, widths, perfetto_steps, otf2_events]


# ---------------------------------------------------------------- two runs

def two_runs(base, new):
    """diff's text, JSON and Markdown have one number each, and it is that of analyze of each run."""
    words = ["diff", base.run, new.run, "-q"]
    text, document, page = (base.compared(*words, *more) for more in ((), ("--json", "-"), ("--markdown", "-")))
    if text is None:
        return
    document = strict(document)
    measures = {row["name"]: row for row in document["measures"]}
    for side, views in (("base", base), ("new", new)):
        if document[side]["ranks"] != max(views.json["run"]["ranks_expected"], views.json["run"]["ranks"]):
            yield f"{side}: {document[side]['ranks']} ranks, analyze {views.json['run']['ranks']}"
        if document[side]["steps"] != len(views.usable):
            yield f"{side}: {document[side]['steps']} steps, analyze {len(views.usable)}"
        mean, known = measures["step_ns"][side] and measures["step_ns"][side]["mean"], views.json["summary"]["step_ns_mean"]
        if known is None and views.json["ranks"]:  # Without steps all that was recorded is compared.
            known = sum(row["span_ns"] for row in views.json["ranks"]) / len(views.json["ranks"])
        if (mean is None) != (known is None) or mean is not None and abs(mean - known) > 1:
            yield f"{side}: step {mean}, analyze {known}"
    lines = dict((re.sub(r"\s+", " ", line[2:25]).strip(), line) for line in text.split("\n") if re.match(r"  \S.{20} ", line) or re.match(r"    \S", line))
    cells = {}
    for line in page.split("\n"):
        parts = [part.strip() for part in line.strip("|").split(" | ")]
        if len(parts) == 6:
            cells[parts[0].replace("\\", "")] = parts
    for name, row in measures.items():
        shown = cells.get(name)
        if shown is None:
            yield f"{name}: not in Markdown"
            continue
        if shown[5].strip("*") != row["verdict"]:
            yield f"{name}: Markdown {shown[5]}, JSON {row['verdict']}"
        fraction = name.endswith("fraction")
        for side, cell in (("base", shown[1]), ("new", shown[2])):
            if (row[side] is None) != (cell == "-") or (row[side] and not shows(cell, row[side]["mean"])):
                yield f"{name}: Markdown {cell}, JSON {row[side]}"
        # The text's line has the same cells.
        if not any(all(cell in line for cell in shown[1:5] if cell != "-") and line.rstrip().endswith(row["verdict"]) for line in text.split("\n")):
            yield f"{name}: no line of the text with {shown[1:]}"
        if row["base"] and row["new"] and row["difference"] is not None:
            if abs(row["difference"] - (row["new"]["mean"] - row["base"]["mean"])) > (1e-9 if fraction else 1):
                yield f"{name}: {row['base']['mean']} to {row['new']['mean']} is no {row['difference']}"
            if row["difference_low"] is not None and not row["difference_low"] <= row["difference"] <= row["difference_high"]:
                yield f"{name}: {row['difference']} not within {row['difference_low']} to {row['difference_high']}"
            if row["relative"] is not None and not math.isclose(row["relative"] * row["base"]["mean"], row["difference"], rel_tol=1e-6, abs_tol=2):
                yield f"{name}: {row['relative']} of {row['base']['mean']} is no {row['difference']}"
    for cause in document["causes"]:
        if cause["sentence"] not in " ".join(text.split()) and " ".join(cause["sentence"].split()) not in " ".join(text.split()):
            yield f"text lacks: {cause['sentence']}"
