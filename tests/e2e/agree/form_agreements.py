"""What must hold of the further forms (forms.py). Each gives its mismatches in words."""

import collections
import math
import re

from forms import measure, shows, strict, unpacked
from views import TERMS

# ---------------------------------------------------------------- of every text and document

NOUNS = ("step|rank|kernel|gap|call|file|collective|message|sample|bucket|event|record|unit|row|core|node|window|operation|block|column|"
         "instance|member|group|process|copie|launche|question|clock violation|warning|blocker|finding|table|other|range|stream|sync|more row")
# "1 steps" and "20 step", but not "rank 1 steps in", "0.1 ms", "steps 0-1".
ONE_OF_MANY = re.compile(rf"(?<![\d.,:/%#-])(?<![\d] )(?<!rank )(?<!step )(?<!and )(?<!unit )(?<!\bof )\b1 (?:{NOUNS})s\b")
MANY_OF_ONE = re.compile(rf"(?<![\d.,:/%#-])(?<!rank )(?<!step )(?<!ranks )(?<!steps )\b(?:[2-9]|[1-9][\d ]*\d) (?:{NOUNS})\b(?![-'.s\w])(?! file| of )")
WRONG = {"no number": re.compile(r"\b(nan|-?inf|NaN|Infinity|null|None|undefined)\b"), "an exponent": re.compile(r"\b\d(\.\d+)?e[+-]?\d\d\b"),
         "an empty name": re.compile(r'(?<!\w)""|\bin , |: ,|  ,'), "minus nothing": re.compile(r"(?<![\d\w])-0(?![.\d\w-])"),
         "a range of nothing": re.compile(r"\b(\d[\d.]* [kMGT]?B) to \1\b"), "twice the same word": re.compile(r"\b(the|a|of|in|is|to|and|for) \1\b"),
         "many of one operation": re.compile(r"\b(?:[2-9]|[1-9][\d ]*\d) (?:all-(?:reduce|gather|to-all)|reduce(?:-scatter)?|broadcast|gather|scatter|barrier|none) of\b"),
         "a rate of nothing": re.compile(r"(?<![\d.])0 [kMG]?B/s"), "a range of no width": re.compile(r"\bwithin 0\b"),
         "an unfilled place": re.compile(r"\{\}"), "a sentinel": re.compile(r"(?<![\d\w])-?9223372036854775\d{3}|\b18446744073709551615\b|\b4294967295\b")}


def plain_texts(v):
    """No text has a number that is none, an empty name or a wrong number of a noun."""
    for where, text in v.texts.items():
        # Sentences go over several lines; the numbers of findings stand before nouns.
        lines = [" ".join(re.sub(r"^  \d  ", "", text, flags=re.M).split())] if where == "analyze" else text.split("\n")
        for line in lines:
            # Names of the program stand in quotes.
            bare = re.sub(r'"[^"]+"', '"x"', line)
            for what, wrong in (("1 of many", ONE_OF_MANY), ("many of 1", MANY_OF_ONE), *WRONG.items()):
                if where.startswith("--table") and what in ("no number", "1 of many", "many of 1", "an empty name"):
                    continue  # Names of kernels may be anything.
                if match := wrong.search(bare):
                    yield f"{where}: {what}: ...{bare[max(0, match.start() - 60):match.end() + 30]}"
    for share in re.findall(r"(-?[\d.]+) %(?! CPU)", v.text):
        if not 0 <= float(share) <= 100:
            yield f"analyze: {share} %"


NAMES = {"headline", "brief", "evidence", "action", "verdict", "title", "op", "question", "sentence", "remedy", "cause", "id"}
FRACTIONS = ("_fraction", "_share", "share_of_idle", "share_of_window")


def walk(where, value):
    yield where, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(f"{where}.{key}", inner)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from walk(f"{where}[{i}]", inner)


def plain_documents(v):
    """Quantiles in order, bounds around what they bound, fractions in [0, 1], names that are there, no infinities."""
    for document, content in v.documents.items():
        for where, value in walk(document, content):
            if isinstance(value, float) and not math.isfinite(value):
                yield f"{where}: {value}"
            if not isinstance(value, dict):
                continue
            for key, one in value.items():
                if key in NAMES and one == "":
                    yield f"{where}.{key} is empty"
                if key.endswith(FRACTIONS) and isinstance(one, (int, float)) and not -1e-9 <= one <= 1 + 1e-9:
                    yield f"{where}.{key}: {one}"
                if key.endswith(("_bytes", "count", "bytes")) and isinstance(one, (int, float)) and one < 0:
                    yield f"{where}.{key}: {one}"
                if key.endswith("interval_ns") and isinstance(one, list) and len(one) == 2 and None not in one and one[0] > one[1]:
                    yield f"{where}.{key}: {one}"
            yield from in_order(where, value)


def in_order(where, row):
    """p10 <= median <= p90 <= p99, low <= high, least <= mean <= most, of what stands in one row."""
    marks = {"p10": 0, "p50": 1, "median": 1, "p90": 2, "p99": 3, "low": 0, "high": 3, "min": -1, "max": 4}
    quantities = collections.defaultdict(dict)
    for key, value in row.items():
        parts = key.split("_")
        for part in parts:
            if part in marks and isinstance(value, (int, float)):
                quantities["_".join(p for p in parts if p != part)][marks[part], part] = value
    for name, found in quantities.items():
        ordered = [value for _, value in sorted(found.items())]
        if ordered != sorted(ordered):
            yield f"{where}: {name or 'quantiles'} {found}"


# ---------------------------------------------------------------- the text of analyze

def prices(v):
    """Number and price of each finding, in text, page and JSON; the total is within the step."""
    part = re.search(r"^  WHAT TO FIX.*?(?=^  RANKS)", v.text, re.M | re.S)
    lines = re.findall(r"^  (\d)  \S.*?\s{2,}(?:(no price)$|(?:(≤) )?(?:([\d.]+ (?:ns|us|ms|s))  )?((?:< )?[\d.]+ %)$)", part.group() if part else "", re.M)
    findings = v.json["findings"]
    if findings and [int(line[0]) for line in lines] != list(range(1, len(findings) + 1)):
        yield f"{len(findings)} findings, lines {[line[0] for line in lines]}"
        return
    for (_, none, most, ns, share), finding in zip(lines, findings):
        if bool(most) != bool(finding["upper_bound"]) and not none:
            yield f"{finding['id']}: text {most or 'no bound'}, JSON upper_bound {finding['upper_bound']}"
        if ns and not shows(ns, finding["saves_ns_per_step"]):
            yield f"{finding['id']}: text {ns}, JSON {finding['saves_ns_per_step']}"
        of = finding["saves_share"] if finding["saves_ns_per_step"] is None else finding["saves_ns_per_step"] / v.whole_of(finding)
        if (of is None) != (not share) or (share and not shows(share, of)):
            yield f"{finding['id']}: text {share or none}, JSON {of}"
    if total := re.search(r"at most ([\d.]+ (?:ns|us|ms|s)|(?:< )?[\d.]+ %)(?: \(((?:< )?[\d.]+ %)\))?", v.json["additivity"] or ""):
        value, half = measure(total.group(1))
        whole = 1 if total.group(1).endswith("%") else v.step_ns
        if value - half > whole:
            yield f"together {total.group(1)} of {whole}"
        if total.group(2) and abs(measure(total.group(2))[0] - value / whole) > measure(total.group(2))[1] + half / whole:
            yield f"together {total.group(0)} of {whole}"


def priced_sentences(v):
    """A price in a headline is the price of its row; a step in it is the step."""
    for finding in v.json["findings"]:
        for shown in re.findall(r"each ([\d.]+ (?:ns|us|ms|s)) step", finding["headline"]):
            if not shows(shown, v.whole_of(finding)):
                yield f"{finding['id']}: each {shown} step, STEP {v.whole_of(finding)}"
        for shown in re.findall(r"would be ([\d.]+ (?:ns|us|ms|s)) shorter", finding["headline"]):
            if finding["replayed"] and not shows(shown, finding["saves_ns_per_step"]):
                yield f"{finding['id']}: {shown} shorter, saves {finding['saves_ns_per_step']}"
        for part in ("headline", "evidence", "action"):
            if re.match(r"[;,.]| |$", finding[part]) and not (part == "evidence" and not finding[part]):
                yield f"{finding['id']}: {part} is '{finding[part]}'"
        if "{" in finding["headline"] or not finding["headline"].endswith("."):
            yield f"{finding['id']}: {finding['headline']}"


def heads(v):
    """The first line: how many ranks, nodes and steps."""
    run, head = v.json["run"], " ".join(v.text.split("\n\n")[0].split())
    ranks = re.search(r"(?:(\d[\d ]*) of )?(\d[\d ]*) ranks?(?: on (\d+) nodes?)?", head.split(" share ")[-1])
    known = (str(run["ranks"]) if run["ranks_expected"] > run["ranks"] else None, str(max(run["ranks_expected"], run["ranks"])), run["nodes"] and str(run["nodes"]))
    if ranks is None or tuple(x and x.replace(" ", "") for x in ranks.groups()) != known:
        yield f"{head}: {ranks and ranks.groups()}, JSON {known}"
    if (steps := re.search(r"steps (\d+).(\d+) \((\d+)\)", head)) and tuple(map(int, steps.groups())) != (run["window"]["first_step"], run["window"]["last_step"], run["steps"]):
        yield f"{head}: JSON {run['window']}, {run['steps']} steps"


def ranks_late(v):
    """The last two columns of RANKS."""
    ranks = {row["rank"]: row for row in v.json["ranks"]}
    if v.json["collectives"] and all(row["partial"] == row["count"] for row in v.json["collectives"]):
        for row in v.json["ranks"]:
            if row["last_fraction"] is not None:
                yield f"rank {row['rank']} last in {row['last_fraction']} of collectives that all lack members"
    part = re.search(r"^  RANKS .*arrives late \(median\)\n((?:  \d+  .*\n)+)", v.text, re.M)
    for line in part.group(1).splitlines() if part else ():
        row = ranks[int(line.split()[0])]
        last = re.search(r"((?:< )?[\d.]+ %|-)(?:  \S.*)?$", line)
        if last is None or (last.group(1) == "-") != (row["last_fraction"] is None) or (last.group(1) != "-" and not shows(last.group(1), row["last_fraction"])):
            yield f"{line.strip()}: last {row['last_fraction']}"
        late = re.search(r"([\d.]+ (?:ns|us|ms|s))$", line)
        if bool(late) != ((row["late_ns_median"] or 0) > 0) or (late and not shows(late.group(1), row["late_ns_median"])):
            yield f"{line.strip()}: late {row['late_ns_median']}"


def collective_lines(v):
    """COLLECTIVES, where each row of the JSON has a line of its own."""
    part = re.search(r"^  COLLECTIVES .*\n((?:  .*\n)+)", v.text, re.M)
    rows = v.json["collectives"]
    if part is None or len(rows) > 6:
        return
    lines = [line for line in part.group(1).splitlines() if not line.startswith("    (")]  # Notes that do not fit beside a row.
    if len(lines) != len(rows):
        yield f"{len(lines)} lines, {len(rows)} rows"
    number = r"(-|[\d.]+ (?:ns|us|ms|s)|0)"
    for line in lines:
        match = re.search(rf"(\d[\d ]*)\s+(-|[\d.]+ [kMGT]?B)\s+{number}\s+{number}\s+{number}\s+(-|\d+)  (\S.*)$", line[27:])
        if match is None:
            yield f"no row: {line}"
            continue
        count, size, transfer, wait, longest, rank, _ = match.groups()
        def fits(row):
            pairs = ((size, row["bytes"]), (transfer, row["transfer_ns_median"]), (wait, row["wait_ns_median"]), (longest, row["longest_wait_ns_median"]))
            return row["count"] == int(count.replace(" ", "")) and all((shown == "-") == (value is None) and (value is None or shows(shown, value)) for shown, value in pairs)
        if not any(fits(row) for row in rows):
            yield f"in no row of the JSON: {line.strip()}"


def trust(v):
    """TRUST, merge and info count the same."""
    t, text, meta = v.json["trust"], " ".join(v.text.split()), v.merged[1]["meta"]
    for noun, value in (("events?", t["events"]), ("dropped", t["dropped"]), ("clock violations?", t["clock_violations"])):
        shown = re.search(rf"(\d[\d ]*) {noun}\b", text[text.find("TRUST"):])
        if shown is None:
            if noun != "clock violations?" or v.json["run"]["ranks"] > 1:
                yield f"no {noun}"
        elif int(shown.group(1).replace(" ", "")) != value:
            yield f"{noun}: {shown.group(1)}, JSON {value}"
    for key, value in (("events", t["events"]), ("dropped", t["dropped"]), ("unmatched_collectives", t["unmatched_collectives"]),
                       ("clock_violations", t["clock_violations"]), ("ranks", v.json["run"]["ranks"]), ("ranks_expected", v.json["run"]["ranks_expected"])):
        if int(meta[key]) != value:
            yield f"{key}: merge {meta[key]}, analyze {value}"
    if v.merged[1]["tables"]["collectives"] != t["collectives"]:
        yield f"collectives: merge {v.merged[1]['tables']['collectives']}, analyze {t['collectives']}"


def explanations(v):
    """--explain has the finding's sentences and rows."""
    for text, finding in zip(v.explained, v.json["findings"]):
        lines, explain = text.split("\n"), finding["explain"]
        if lines[0].split()[1] != finding["id"] or [line.strip() for line in lines[1:4]] != [finding[key] for key in ("headline", "evidence", "action")]:
            yield f"{finding['id']}: {lines[:4]}"
        if not explain["rows"]:
            yield f"{finding['id']}: no row behind it"
        elif lines[5].split() != explain["columns"]:
            yield f"{finding['id']}: columns {lines[5].split()}, JSON {explain['columns']}"
        names = explain.get("names") or [""] * len(explain["rows"])
        for line, row, name in zip(lines[6:], explain["rows"], names):
            if line.split(None, len(row))[:len(row)] != ["-" if cell is None else str(cell) for cell in row] or not line.endswith(name):
                yield f"{finding['id']}: {line}, JSON {row} {name}"
        for column, cells in zip(explain["columns"], zip(*explain["rows"])):
            # Signed: how much later or longer.
            if any(cell is not None and cell < 0 for cell in cells) and not column.startswith(("arrives_late", "works_longer", "low", "later", "longer")):
                yield f"{finding['id']}: {column} {min(cell for cell in cells if cell is not None)}"


# ---------------------------------------------------------------- tables

def header(column):
    for unit in ("_bytes_per_s", "_ns", "_bytes"):
        if len(column) > len(unit) and column.endswith(unit):
            column = column[:-len(unit)]
            break
    return "bandwidth" if column == "bytes_per_s" else column.replace("_", " ")


def table_forms(v):
    """Each table: CSV is JSON; the text's cells are the JSON's."""
    for name in v.table_names:
        text, document, rows = v.table_forms(name)
        columns, cells = [column["name"] for column in document["columns"]], document["rows"]
        kinds = {column["name"]: column["kind"] for column in document["columns"]}
        if len(rows) != len(cells):
            yield f"{name}: {len(rows)} rows in CSV, {len(cells)} in JSON"
        for csv_row, json_row in zip(rows, cells):
            row = dict(zip(columns, json_row))
            for column in columns:
                value, shown = row[column], csv_row[column]
                if kinds[column] in ("text", "id") or isinstance(value, str):
                    continue
                if value != shown and not (value is not None and shown is not None and math.isclose(value, shown, rel_tol=1e-12)):
                    yield f"{name}.{column}: CSV {shown}, JSON {value}"
            for column, value in row.items():
                if kinds[column] == "fraction" and value is not None and not -1e-9 <= value <= 1 + 1e-9 and "overhead" not in column:
                    yield f"{name}.{column}: {value}"
                if isinstance(value, float) and not math.isfinite(value):
                    yield f"{name}.{column}: {value}"
            yield from (f"{name}: {what}" for what in in_order(f"row {json_row[:3]}", row))
        yield from text_of_table(name, text, columns, cells)


def shares(v, seen=None):
    """A share of a whole is never more than it: of all tables, of all ranks and single ones, of all steps and of single ones."""
    steps = [step["index"] for step in v.json["steps"] if step["complete"]]
    windows = [()] + [("--steps", f"{step}:{step + 1}") for step in steps[1:3]]
    for name in v.table_names:
        for window in windows:
            document = strict(v.lockstep("analyze", v.run, "--table", name, "--rank", "all", "--top", "0", "--json", "-", *window))
            fractions = [(i, column["name"]) for i, column in enumerate(document["columns"]) if column["kind"] == "fraction"]
            for row in document["rows"]:
                for i, column in fractions:
                    if row[i] is not None and seen is not None:
                        seen.add((name, column))
                    if row[i] is not None and not 0 <= row[i] <= 1:
                        yield f"{name}.{column} {' '.join(window)}, {row[:3]}: {row[i]}"


def text_of_table(name, text, columns, cells):
    lines = text.split("\n")
    head = next((i for i, line in enumerate(lines) if line.startswith("  ") and i > 0), None)
    if not cells or head is None or head + len(cells) >= len(lines):
        if cells:
            yield f"{name}: {len(cells)} rows in JSON, {len(lines)} lines of text"
        return
    named = collections.Counter(map(header, columns))
    shown = [(at.start(), at.end(), at.group()) for at in re.finditer(r"\S+(?: \S+)*", lines[head])]
    for i, json_row in enumerate(cells):
        row = {header(column): value for column, value in zip(columns, json_row)}
        parts = re.split(r" {2,}", lines[head + 1 + i].strip())
        if len(parts) != len(shown):
            continue  # A name with spaces of its own.
        for (_, _, title), part in zip(shown, parts):
            if named[title] != 1:
                continue
            value = row[title]
            if value is None:
                good = part == "-"
            elif isinstance(value, str):
                good = bool(part)  # Names are shortened.
            else:
                good = shows(part, value)
            if not good:
                yield f"{name}, row {i + 1}: {title} {part}, JSON {value}"


# ---------------------------------------------------------------- page, whatif, diff, baseline

def page_forms(v):
    """The page's findings, ranks and mean step are the analysis'."""
    page = v.page
    for ours, theirs in zip(v.json["findings"], page["analysis"]["findings"]):
        if ours != theirs:
            yield f"{ours['id']}: {[key for key in ours if ours[key] != theirs.get(key)]} of the page differ"
    if len(v.json["findings"]) != len(page["analysis"]["findings"]) or v.json["verdict"] != page["analysis"]["verdict"]:
        yield f"page: {page['analysis']['verdict']}"
    ranks = page["ranks"]
    for key in ("rank", "span_ns", *TERMS, "comm_ns", "overlap_ns", "input_ns", "mpi_other_ns", "late_sender_ns", "late_receiver_ns", "cpu_ns", "offcpu_ns", "late_ns_median"):
        if unpacked(ranks[key]) != [row[key] for row in v.json["ranks"]]:
            yield f"ranks.{key}: page {unpacked(ranks[key])[:8]}, JSON {[row[key] for row in v.json['ranks']][:8]}"
    arrivals = {row["rank"]: row for row in v.json["arrivals"]}
    for key in ("last", "ties", "charge_ns"):
        if unpacked(ranks[key]) != [arrivals.get(row["rank"], {}).get(key) for row in v.json["ranks"]]:
            yield f"ranks.{key}: page {unpacked(ranks[key])[:8]}"
    losses = collections.Counter()
    for loss in v.json["losses"]:
        losses[loss["name"]] += loss["count"]
    if {loss["name"]: loss["count"] for loss in page["losses"]} != dict(losses):
        yield f"losses: page {page['losses']}, JSON {dict(losses)}"
    if page["mean_step"] and not v.json["truncated"]:
        for key in (*TERMS, "comm_ns", "overlap_ns"):
            for row, shown in zip(v.json["ranks"], unpacked(page["mean_step"][key])):
                cells = [cell[key] for step in v.usable for cell in step["ranks"] if cell["rank"] == row["rank"]]
                if (shown is None) != (not cells or None in cells) or shown is not None and abs(shown - sum(cells) / len(cells)) > 1:
                    yield f"mean step, rank {row['rank']}, {key}: {shown}"


def whatif_forms(v):
    """What is replayed is what analyze replays; text and JSON are one."""
    if v.whatif is None:
        return
    text, document = v.whatif
    head = re.match(r"(?:(\d+) steps? of|All that was recorded of) (\d+) ranks?(?: replayed.*: a step)? takes (\S+ \S+), replayed (\S+ \S+) \(", text)
    if head is None:
        yield text.split("\n")[0]
        return
    if int(head.group(1) or 1) != document["steps"] or int(head.group(2)) != v.json["run"]["ranks"]:
        yield f"{head.group(0)}: JSON {document['steps']} steps, {v.json['run']['ranks']} ranks"
    for shown, key in ((head.group(3), "measured_step_ns"), (head.group(4), "replayed_step_ns")):
        if not shows(shown, document[key]):
            yield f"{key}: text {shown}, JSON {document[key]}"
    unchanged = re.search(r"^as recorded, replayed +(\S+(?: \S+)?)$", text, re.M)
    if unchanged is None or not shows(unchanged.group(1), document["replayed_step_ns"]):
        yield f"unchanged: {unchanged and unchanged.group(0)}, JSON {document['replayed_step_ns']}"
    for answer in document["answers"]:
        if answer["step_ns"] < 0 or answer["step_ns"] + answer["gain_ns"] != document["replayed_step_ns"]:
            yield f"{answer['question']}: {answer['step_ns']} and a gain of {answer['gain_ns']} are not {document['replayed_step_ns']}"
        if answer["low_ns"] is not None and not answer["low_ns"] <= answer["step_ns"] <= answer["high_ns"]:
            yield f"{answer['question']}: {answer['step_ns']} outside of {answer['low_ns']} to {answer['high_ns']}"
        line = next((line for line in text.split("\n") if line.startswith(answer["question"] + "  ")), None)
        cells = line and re.split(r" {2,}", line[len(answer["question"]):].strip())
        if not cells or not shows(cells[0], answer["step_ns"]) or not shows(cells[1], answer["gain_ns"]):
            yield f"{answer['question']}: {line}"
    replay = v.json["replay"]
    if v.json["run"]["ranks"] > 1 and v.json["collectives"] and all(row["partial"] == row["count"] for row in v.json["collectives"]):
        yield "replayed although ranks do not wait for each other: all collectives lack members"
    if replay.get("measured_step_ns") is not None and replay["measured_step_ns"] != document["measured_step_ns"]:
        yield f"measured: analyze {replay['measured_step_ns']}, whatif {document['measured_step_ns']}"


def diff_forms(v):
    """diff's text, its JSON and a baseline of the run have one mean each."""
    means = {measure["name"]: measure["base"] and measure["base"]["mean"] for measure in v.diff["measures"]}
    for name, spread in v.baseline["measures"].items():
        if spread and name in means and means[name] is not None and not math.isclose(spread["mean"], means[name], rel_tol=1e-9, abs_tol=1):
            yield f"{name}: baseline {spread['mean']}, diff {means[name]}"
    if v.baseline["run"]["steps"] != len(v.usable) or v.baseline["run"]["ranks"] != max(v.json["run"]["ranks_expected"], v.json["run"]["ranks"]):
        yield f"baseline of {v.baseline['run']}, {len(v.usable)} steps of {v.json['run']['ranks']} ranks"
    # Waits of ranks of one node are below no error: means over ranks and steps.
    for measure_of, key in (("compute_ns", "compute_ns"), ("exposed_wait_ns", "exposed_wait_ns"), ("idle_ns", "idle_ns")):
        if means.get(measure_of) is None or not v.usable or v.json["truncated"]:
            continue
        mean = sum(sum(cell[key] for cell in step["ranks"]) / len(step["ranks"]) for step in v.usable) / len(v.usable)
        if abs(means[measure_of] - mean) > 1:
            yield f"{measure_of}: diff {means[measure_of]}, steps[] {mean}"
    for line in v.diff_text.split("\n"):
        if match := re.match(r"  step  +(\S+ \S+)  +(\S+ \S+)  ", line):
            if means["step_ns"] is not None and not (shows(match.group(1), means["step_ns"]) and match.group(1) == match.group(2)):
                yield f"{line.strip()}: JSON {means['step_ns']}"


# ---------------------------------------------------------------- info and exports

# Tables of rank files that exports leave out or that hold no events.
NOT_EXPORTED = {"cpu_samples", "clock_bursts", "clock_snapshots", "strings", "string_bytes", "meta"}


def info_forms(v):
    """info's rows are the CSV export's; its ranks those of analyze; text and JSON are one."""
    text, document = v.info
    run = v.json["run"]
    recorded = re.match(r"(\d+) of (\d+) ranks? recorded", text)
    if recorded is None or [int(n) for n in recorded.groups()] != [run["ranks"], max(run["ranks_expected"], run["ranks"])]:
        yield f"{text.splitlines()[0]}: analyze {run['ranks']} of {run['ranks_expected']}"
    if document["ranks_missing"] != run["ranks_missing"]:
        yield f"missing: info {document['ranks_missing']}, analyze {run['ranks_missing']}"
    used = {entry["file"].split("/")[-1] for entry in document["ranks"]}
    counted = collections.Counter()
    for file in document["files"]:
        if file["file"].split("/")[-1] in used:
            counted.update({name: table["rows"] for name, table in file["tables"].items()})
        if file["file"].endswith("timeline.h5"):
            for name, rows in v.exported.items():
                if name in file["tables"] and file["tables"][name]["rows"] != len(rows):
                    yield f"timeline {name}: info {file['tables'][name]['rows']}, CSV {len(rows)}"
    for name, rows in v.rank_tables.items():
        if name not in NOT_EXPORTED and counted[name] != len(rows):
            yield f"{name}: info {counted[name]}, CSV {len(rows)}"


def export_forms(v):
    """Chrome and Kineto hold as many events as the rank tables, for as long."""
    tables = collections.defaultdict(list, v.rank_tables)
    for kind, table in (("kernel", "kernels"), ("cuda_sync", "sync")):
        for rank, events in v.kineto.items():
            of = [row for row in tables[table] if row["file_rank"] == rank]
            shown = [event for event in events if event.get("cat") == kind and event.get("ph") == "X"]
            if len(of) != len(shown):
                yield f"kineto, rank {rank}: {len(shown)} of {kind}, CSV {len(of)}"
            elif of and table == "kernels":
                long, csv_long = sum(event["dur"] for event in shown) * 1e3, sum(row["duration_ns"] for row in of)
                # The one is mapped to cluster time, the other is the rank's own: their clocks drift apart by less than that.
                if abs(long - csv_long) > len(of) + 1e-4 * csv_long:
                    yield f"kineto, rank {rank}: kernels take {long} ns, CSV {csv_long}"
    steps = [event for event in v.chrome[1] if event.get("ph") == "X" and "step_ns" in event.get("args", {})]
    known = {step["index"]: step["step_ns"] for step in v.json["steps"] if step["step_ns"] is not None}
    shown = {int(re.search(r"\d+", event["name"]).group()): event["args"]["step_ns"] for event in steps}
    for index, ns in known.items():
        if index in shown and shown[index] != ns:
            yield f"chrome, step {index}: {shown[index]}, JSON {ns}"
    collectives = sum(1 for event in v.chrome[1] if event.get("ph") == "X" and "ranks_seen" in event.get("args", {}))
    if collectives not in (0, len(v.exported["collectives"])):
        yield f"chrome: {collectives} collectives, CSV {len(v.exported['collectives'])}"


FORMS = [plain_texts, plain_documents, prices, priced_sentences, heads, ranks_late, collective_lines, trust, explanations, table_forms, page_forms, whatif_forms,
         diff_forms, info_forms, export_forms]
