"""lockstep report in a real browser: what the page shows is what analysis.json says, whatever the run was.

usage: report_test.py BUILD_DIR CASE
"""

import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import jobs
from browser import Browser, chromium

GOLDEN = jobs.SOURCE / "tests/golden/cases"
TERMS = ["compute_ns", "blocked_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns", "exposed_copy_ns", "idle_ns"]
SECTIONS = ["findings", "heatmap", "ranks", "buckets", "stragglers", "timeline", "inside", "whatif", "collectives", "trust", "facts"]
# What is drawn (analysis/report/html/lane_pieces.h) by the term it is of.
TERM_OF = {"exposed transfer": "exposed_transfer_ns", "waiting for another rank": "exposed_wait_ns", "copy": "exposed_copy_ns",
           "exposed communication, not split into waiting and transfer": "exposed_unsplit_ns", "idle": "idle_ns", "input": "idle_ns"}


def term_of(state):
    return "blocked_ns" if state.startswith("blocked") else TERM_OF.get(state, "compute_ns")


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def equal(left, right, what):
    check(left == right, f"{what}: {str(left)[:300]} is not {str(right)[:300]}")


def described(place, name, text, *more):
    """A synthetic run from its description (tests/make_run)."""
    run = place / name
    (place / f"{name}.trace").write_text(text)
    done = jobs.run([jobs.BUILD / "make_run", place / f"{name}.trace", run, *more], place)
    equal(done.returncode, 0, done.stderr.decode())
    return run


def synthetic(place, case, *more):
    """The same of one of the goldens' descriptions."""
    return described(place, case, (GOLDEN / case / "run.trace").read_text(), *more)


# Collectives that repeat nothing: no steps to be found.
NO_STEPS = "ranks 3\nsteps 1\nmarks off\nnetwork alpha=20us bandwidth=5GB/s skew=2us\njitter 1%\nlate rank=1 by=2ms\nstep\n" + "".join(
    f"  compute {i % 7 + 1}ms\n  allreduce {i + 1}KiB\n" for i in range(40)) + "end\n"


def report(run, *words, codes=(0, 3)):
    done = jobs.run([jobs.LOCKSTEP, "report", run, *words], "/", timeout=300)
    check(done.returncode in codes, f"exit {done.returncode}: {done.stderr.decode()}")
    return run / "report.html", json.loads((run / "analysis.json").read_text()), done


def sound(page, path):
    """Nothing on the console, nothing fetched, no plot left blank, no section silently empty."""
    equal(page.console, [], "console")
    foreign = [url for url in page.requests if not url.startswith("data:") and url != pathlib.Path(path).resolve().as_uri()]
    equal(foreign, [], "requests")
    equal(page.eval("[...document.querySelectorAll('section')].map(s => s.id)"), SECTIONS, "sections")
    empty = page.eval("[...document.querySelectorAll('section')].filter(s => s.innerText.trim().length < 40).map(s => s.id)")
    equal(empty, [], "sections without a word")
    failed = page.eval("[...document.querySelectorAll('.absent')].map(e => e.textContent).filter(t => t.includes('could not be drawn'))")
    equal(failed, [], "sections that failed")
    blank = page.eval("""[...document.querySelectorAll('canvas')].filter(c => {
      const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
      for (let i = 0; i < d.length && seen.size < 4; i += 4) seen.add(d[i] << 24 | d[i+1] << 16 | d[i+2] << 8 | d[i+3]);
      return seen.size < 4; }).map(c => c.outerHTML)""")
    equal(blank, [], "blank plots")


def saved(browser, page, name):
    check(page.eval(f"!!document.querySelector('[data-csv=\"{name}\"]')"), f"no button for {name}.csv")
    page.eval(f"document.querySelector('[data-csv=\"{name}\"]').click()")
    return list(csv.DictReader(io.StringIO(browser.downloaded(name + ".csv"), newline="")))


def number(text):
    return None if text == "" else int(text) if text.lstrip("-").isdigit() else float(text)


def same_numbers(browser, page, analysis):
    """The page's tables hold the numbers of analysis.json."""
    ranks = {row["rank"]: row for row in analysis["ranks"]}
    rows = saved(browser, page, "ranks")
    equal(len(rows), len(ranks), "ranks")
    for row in rows:
        of = ranks[int(row["rank"])]
        for key in [*TERMS, "span_ns", "comm_ns", "overlap_ns", "late_ns_median", "cpu_ns", "offcpu_ns"]:
            equal(number(row[key]), of[key], f"rank {row['rank']} {key}")
    if not analysis["steps"]:
        return
    cells = {(cell["rank"], step["index"]): cell for step in analysis["steps"] for cell in step["ranks"]}
    rows = [row for row in saved(browser, page, "heatmap") if row["step_ns"] != ""]
    # The page also has what lies outside of the analysis window, marked so.
    inside = {step["index"] for step in analysis["steps"]}
    rows = [row for row in rows if int(row["step"]) in inside]
    equal(len(rows), len(cells), "cells of the heatmap")
    for row in rows:
        cell = cells[int(row["rank"]), int(row["step"])]
        equal(int(row["step_ns"]), cell["end_ns"] - cell["begin_ns"], "step_ns")
        equal(int(row["compute_ns"]), cell["compute_ns"], "compute_ns")
        equal(int(row["wait_ns"]), cell["exposed_wait_ns"], "wait_ns")
        equal(int(row["transfer_ns"]), cell["exposed_transfer_ns"] + cell["exposed_unsplit_ns"], "transfer_ns")
        equal(int(row["idle_ns"]), cell["idle_ns"], "idle_ns")
    median = analysis["summary"]["median_step"]
    usable = {step["index"] for step in analysis["steps"] if step["complete"] and not step["warmup"]}
    for row in saved(browser, page, "ranks-mean-step"):
        for key in [*TERMS, "comm_ns", "overlap_ns"]:
            of_steps = [cell[key] for (rank, step), cell in cells.items() if rank == int(row["rank"]) and step in usable]
            check(abs(int(row[key]) - sum(of_steps) / len(of_steps)) <= 1, f"mean step {key}")
    # What the timeline draws adds up to the identity: to the ns on one clock, else within the clocks' drift.
    drawn = {}
    for row in saved(browser, page, f"pieces-step-{median}"):
        of_rank = drawn.setdefault(int(row["rank"]), dict.fromkeys([*TERMS, "overlap_ns"], 0))
        of_rank[term_of(row["state"])] += int(row["duration_ns"])
        if "beneath it" in row["state"]:
            of_rank["overlap_ns"] += int(row["duration_ns"])
    equal(sorted(drawn), sorted(rank for rank, step in cells if step == median), "ranks of the timeline")
    if page.eval("document.querySelector('#timeline').innerText.includes('coarser')"):
        return
    for rank, terms in drawn.items():
        for key, value in terms.items():
            cell = dict(cells[rank, median])
            # Nothing says when it was: drawn as compute.
            unplaced = cell.get("blocked_unplaced_ns", 0)
            cell["compute_ns"] += unplaced
            cell["blocked_ns"] -= unplaced
            check(abs(value - cell[key]) <= 50 + 1e-4 * cell[key], f"rank {rank}, {key}: drawn {value}, analysed {cell[key]}")


def same_collectives(browser, page, analysis):
    rows = saved(browser, page, "collectives")
    equal(len(rows), len(analysis["collectives"]), "collectives")
    known = sorted((c["op"], c["bytes"], c["count"], c["transfer_ns_median"], c["wait_ns_median"]) for c in analysis["collectives"] if c["transfer_ns_median"] is not None)
    shown = sorted((r["op"], int(r["bytes"]), int(r["count"]), number(r["transfer_ns_median"]), number(r["wait_ns_median"])) for r in rows if r["transfer_ns_median"])
    equal(shown, known, "collectives")


def words(ns):
    """As analysis/core/format.cc writes it."""
    value, unit = (ns / 1e9, "s") if ns >= 9999.5e6 else (ns / 1e6, "ms") if ns >= 999.5e3 else (ns / 1e3, "us") if ns >= 999.5 else (ns, "ns")
    text = f"{value:.{0 if unit == 'ns' or value >= 99.95 else 1 if value >= 9.995 else 2}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + " " + unit if ns else "0"


def demo(place):
    """A real job: four MPI processes, one of them slow; pointer, keyboard, themes, print."""
    run = place / "demo"
    done = jobs.run([*jobs.MPIRUN, "-np", 4, jobs.LOCKSTEP, "run", "-o", run, "--after", "report", "--", jobs.BUILD / "ddp_mpi", "--steps", 30,
                     "--step-ms", 20, "--bucket-cap-mb", "0.25", "--slow-rank", "2:1.4", "--quiet"], place)
    equal(done.returncode, 0, done.stderr.decode())
    check(b"report.html" in done.stderr, "the closing lines of the run name the page")
    first = (run / "report.html").read_bytes()
    path, analysis, _ = report(run)
    equal(path.read_bytes(), first, "the same run gives the same page")
    with Browser() as browser:
        page = browser.open(path)
        sound(page, path)
        same_numbers(browser, page, analysis)
        same_collectives(browser, page, analysis)
        text = page.eval("document.body.innerText")
        for finding in analysis["findings"]:
            check(finding["headline"] in text and finding["evidence"] in text and finding["action"] in text, finding["headline"])
        check(analysis["verdict"] in text, "verdict")
        equal(page.eval("document.querySelector('.figures b').textContent"), words(sum(analysis["summary"][key] for key in TERMS)), "mean step")

        # The pointer over a cell of the heatmap: rank 2, the step in the middle.
        columns, width = len(analysis["steps"]), page.eval("document.querySelector('[data-plot=heatmap]').clientWidth")
        page.eval("(e => { e.value = 'compute_ns'; e.dispatchEvent(new Event('change')); })(document.getElementById('heatmap-measure'))")
        step = analysis["steps"][columns // 2]
        tip = page.hover("[data-plot=heatmap]", 64 + (columns // 2 + 0.5) * (width - 72) / columns, 4 + 2.5 * 22)
        equal(tip[0], f"rank 2 · step {step['index']}", "tip of the heatmap")
        equal(tip[1], "compute " + words(next(c["compute_ns"] for c in step["ranks"] if c["rank"] == 2)), "tip of the heatmap")
        tip = page.hover("[data-plot=ranks]", 100, 12)
        check(tip[0].startswith("rank 0 ·") and any(line.startswith("compute ") for line in tip), f"tip of the bars: {tip}")
        # Along the keyboard: every plot is reached and tells something.
        plots = page.eval("[...document.querySelectorAll('[data-plot]')].map(e => e.dataset.plot)")
        check({"heatmap", "ranks", "scores", "timeline"} <= set(plots), f"plots: {plots}")
        page.eval("document.body.tabIndex = -1, document.body.focus(), window.scrollTo(0, 0)")
        reached, told = [], set()
        for _ in range(400):
            page.key("Tab")
            focus = page.eval("document.activeElement === document.body ? null : document.activeElement.dataset.plot || document.activeElement.textContent || document.activeElement.id || document.activeElement.tagName")
            if focus is None or (reached and focus == reached[0] and len(reached) > 20):
                break
            reached.append(focus)
            if focus in plots:
                def tip_after(keys):
                    # The focus scrolls the page there, and scrolling hides the tip, now or a moment later.
                    for _ in range(10):
                        for key in keys:
                            page.key(key)
                        if tip := page.tip():
                            return tip
                        time.sleep(0.1)
                    return []

                if tip_after(("ArrowDown", "ArrowRight")):
                    told.add(focus)
                if focus == "timeline":
                    tip = tip_after("n")
                    check(any("all-reduce of" in line or "waits" in line or "barrier" in line for line in tip), f"operation by key: {tip}")
                page.key("Escape")
        equal(told, set(plots), "plots that answer to arrow keys")
        check(page.eval("document.querySelectorAll('th button').length") > 0 and "CSV" in reached, "tables and buttons by keyboard")
        # Sorting a table and opening the one behind a plot.
        page.eval("document.querySelector('#heatmap details').open = true")
        page.wait("document.querySelectorAll('#heatmap tbody tr').length === 50")
        # Zoom: the view changes what is drawn.
        hash_of = "(c => { let h = 0; const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; for (let i = 0; i < d.length; i += 4) h = (h * 31 + d[i] + d[i+1]) | 0; return h; })(document.querySelector('[data-plot=timeline]'))"
        before = page.eval(hash_of)
        page.eval("document.querySelector('#timeline [title=\"zoom in\"]').click()")
        check(page.eval(hash_of) != before, "zoom")
        page.eval("document.querySelector('#timeline [title=\"show all\"]').click()")
        # Sliders.
        if page.eval("!!document.getElementById('whatif-bandwidth')"):
            answer = page.eval("document.getElementById('whatif-answer').textContent")
            page.eval("(e => { e.value = e.max; e.dispatchEvent(new Event('input')); })(document.getElementById('whatif-bandwidth'))")
            check(page.eval("document.getElementById('whatif-answer').textContent") != answer, "the answer follows the slider")
        check(page.eval("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "light")
        page.eval("document.getElementById('theme').click()")
        check(page.eval("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)", "dark by the button")
        equal(page.console, [], "console at the end")
        check(len(page.call("Page.printToPDF")["data"]) > 20_000, "printing")
        page = browser.open(path, dark=True)
        sound(page, path)
        check(page.eval("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)", "dark by preference")
        # A link to a section, which is made after the browser would have gone there.
        page.eval("delete document.body.dataset.ready, location.hash = 'trust'")
        page.call("Page.reload")
        page.wait("document.readyState === 'complete' && document.body.dataset.ready")
        check(page.eval("(r => r.top >= 0 && r.top < innerHeight)(document.getElementById('trust').getBoundingClientRect())"), "a link to a section")
    # Without a locale (uPlot), and without what old browsers lack.
    with Browser(language="C") as browser:
        sound(browser.open(path), path)
    old = place / "old.html"
    page_text = path.read_text()
    check("<script>" in page_text and page_text.count("</script>") == 2, "two scripts, data and code")
    old.write_text(page_text.replace('type="application/json" id="data"', 'type="application/json" id="gone"'))
    with Browser() as browser:
        target = browser.call("Target.createTarget", {"url": old.as_uri()})["targetId"]
        session = browser.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        from browser import Page
        page = browser.pages[session] = Page(browser, session)
        page.wait("document.readyState === 'complete' && document.getElementById('plain')?.hidden === false")
        check(analysis["verdict"][:40] in " ".join(page.eval("document.getElementById('plain').textContent").split()), "the summary as text where plots fail")


def kinds(place):
    """Runs of every kind, synthetic ones: GPUs, no steps, missing ranks, messages, shards."""
    with Browser() as browser:
        for case in ("gpu_ddp", "fsdp_gpu", "pipeline_gpu", "unmarked", "no_steps", "missing_rank", "ended_early", "clock_offset_drift", "healthy", "pipeline", "hiccup", "blocked_all", "helper_waits"):
            try:
                run = described(place, case, NO_STEPS) if case == "unmarked" else synthetic(place, case)
                path, analysis, _ = report(run)
                page = browser.open(path)
                sound(page, path)
                same_numbers(browser, page, analysis)
                if analysis["collectives"]:
                    same_collectives(browser, page, analysis)
                text = page.eval("document.body.innerText")
                check(analysis["verdict"] in text, "verdict")
                if case == "gpu_ddp":
                    gpu(browser, page, analysis)
                    inside(browser, page, run)
                if case == "unmarked":
                    check("This run has no steps" in text, "says why there is no heatmap")
                    name = page.eval("document.querySelector('[data-csv^=pieces-slice]')?.dataset.csv")
                    check("slices" in text and name and len(saved(browser, page, name)) > 10, "a timeline of slices")
                if case in ("missing_rank", "ended_early"):
                    check("incomplete or doubtful" in text, "says that it is incomplete")
            except AssertionError as error:
                raise AssertionError(f"{case}: {error}") from error


        # Nothing at all to see, of a program that does nothing.
        run = place / "sleep"
        jobs.run([jobs.LOCKSTEP, "run", "-o", run, "--after", "none", "--", "/bin/sleep", "0.1"], place)
        path, _, _ = report(run)
        sound(browser.open(path), path)


def gpu(browser, page, analysis):
    plots = page.eval("[...document.querySelectorAll('[data-plot]')].map(e => e.dataset.plot)")
    check("scatter" in plots, f"scatter of transfers: {plots}")
    rows = saved(browser, page, "transfers-all-reduce")
    counted = sum(c["count"] - c["censored"] - c["partial"] - c["grouped"] for c in analysis["collectives"] if c["op"] == "all-reduce" and c["bytes"] > 0)
    equal(len(rows), counted, "points")
    curve = (analysis["buckets"] or {}).get("curve")
    if curve:
        rows = saved(browser, page, "bucket-caps")
        equal([int(row["predicted_step_ns"]) for row in rows], [point["predicted_step_ns"] for point in curve], "curve")
    if analysis["replay"]["skipped"] is None:
        rows = saved(browser, page, "what-if")
        still = [row for row in rows if row["bandwidth"] == "1" and row["cap_mb"] == "" and row["without_ranks"] == ""]
        equal([int(row["step_ns"]) for row in still], [analysis["replay"]["replayed_step_ns"]], "nothing changed")
        free = [int(row["step_ns"]) for row in rows if row["bandwidth"] == "free" and row["cap_mb"] == "" and row["without_ranks"] == ""]
        check(free[0] <= int(still[0]["step_ns"]), "free communication is not slower")
        if analysis["overlap"]:
            check(abs(free[0] - analysis["overlap"]["t_free_comm_ns"]) < 0.01 * free[0], "free communication is what analysis says")


def inside(browser, page, run):
    """The tables of what ranks do inside are those of the command line."""
    names = page.eval("[...document.querySelectorAll('#inside [data-csv]')].map(e => e.dataset.csv)")
    kernels = [name for name in names if name.startswith("kernels-rank-")]
    equal(len(kernels), 1, f"tables of kernels: {names}")
    rank = kernels[0].rsplit("-", 1)[1]
    done = jobs.run([jobs.LOCKSTEP, "analyze", run, "--quiet", "--table", "kernels", "--rank", rank, "--top", "0", "--csv", "-"], "/")
    equal(done.returncode, 0, done.stderr.decode())
    printed = {row["kernel"]: row for row in csv.DictReader(io.StringIO(done.stdout.decode(), newline=""))}
    rows = saved(browser, page, kernels[0])
    check(0 < len(rows) <= len(printed), f"{len(rows)} kernels of {len(printed)}")
    for row in rows:
        for key in ("rank", "count", "total_ns"):
            equal(number(row[key]), number(printed[row["kernel"]][key]), f"{row['kernel']} {key}")


def imported(place):
    """Kineto traces, one rank of them too."""
    with Browser() as browser:
        for name, case, more in (("traces", "gpu_ddp", ["--kineto", "nccl=seq"]), ):
            run = synthetic(place, case, *more)
            done = jobs.run([jobs.LOCKSTEP, "report", run, "-o", place / f"{name}.html"], place, timeout=300)
            check(done.returncode in (0, 3), done.stderr.decode())
            page = browser.open(place / f"{name}.html")
            sound(page, place / f"{name}.html")
            single = sorted(path for path in run.iterdir() if path.suffix in (".json", ".gz") and "pt.trace" in path.name)
            done = jobs.run([jobs.LOCKSTEP, "report", single[0], "-o", place / "one.html"], place, timeout=300)
            check(done.returncode in (0, 3), done.stderr.decode())
            page = browser.open(place / "one.html")
            sound(page, place / "one.html")
            check("The run has one rank" in page.eval("document.body.innerText"), "one rank: says so")


# Rank 2 takes twice as long in one function; it and another one were sampled.
SAMPLED = """ranks 4
steps 20
seed 5
network alpha=20us bandwidth=5GB/s
jitter 1%
slow rank=2 factor=2.5 at=collate
stacks rank=2 period=1ms compared=1
stacks rank=1 period=1ms
step
  push <b>load</b>;x
  compute 5ms name=collate
  compute 1ms name=copy
  pop
  forward 3ms
  backward 6ms buckets=1MiB
  waitall
  barrier
end
"""


def flames(place):
    """A late rank beside a healthy one: what the plots and their tables say is what the samples are."""
    run = described(place, "sampled", SAMPLED)
    path, analysis, _ = report(run)
    equal([s["rank"] for s in analysis["stragglers"]], [2], "stragglers")
    done = jobs.run([jobs.LOCKSTEP, "analyze", run, "--table", "stacks", "--rank", "2", "--json", "-"], place)
    table = json.loads(done.stdout)
    rows = [dict(zip([column["name"] for column in table["columns"]], row)) for row in table["rows"]]
    counted = {row["function"]: row for row in rows}
    with Browser() as browser:
        for dark in (False, True):
            page = browser.open(path, dark=dark)
            sound(page, path)
        equal(page.eval("[...document.querySelectorAll('[data-plot^=flame]')].map(e => e.dataset.plot)"), ["flame-2", "flame-1"], "plots")
        rows = {row["function"]: row for row in saved(browser, page, "flame-rank-2")}
        for name in ("main", "<b>load</b>;x", "collate", "copy", "forward"):
            equal((int(rows[name]["samples"]), int(rows[name]["late_samples"])), (counted[name]["samples"], counted[name]["late_samples"]), name)
        check(float(rows["collate"]["share"]) > 1.5 * float(rows["collate"]["other_share"]), "collate is longer here")
        equal(rows["collate"]["caller"], "<b>load</b>;x", "caller")
        equal(page.eval("document.querySelectorAll('#stragglers .flame b').length"), 0, "a name became an element")
        label = page.eval("document.querySelector('[data-plot=flame-2]').getAttribute('aria-label')")
        check("collate, train.py:" in label and f"{analysis['stragglers'][0]['stack']['of_samples']} samples" in label, f"the plot in words: {label}")
        # The pointer: all that is below the root; the widest box of the second row is the loading.
        tip = page.hover("[data-plot=flame-2]", 30, 18 * 2 + 9)
        check(tip[0].startswith("<b>load</b>;x, train.py:") and any(line.startswith("rank 1: ") for line in tip), f"tip: {tip}")
        # The keyboard: down to the function, larger, and back.
        page.eval("document.querySelector('[data-plot=flame-2]').focus()")
        told, tall = [], "document.querySelector('[data-plot=flame-2]').clientHeight"
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp"):
            page.key(key)
            told.append((page.tip() or [""])[0].split(",")[0])
        equal(told, ["main", "<b>load</b>;x", "collate", "copy", "collate", "<b>load</b>;x"], "keys")
        whole = page.eval(tall)
        page.key("Enter")
        enlarged = page.eval(tall)
        page.key("0")
        check(enlarged < whole == page.eval(tall), f"Enter and 0: {whole}, {enlarged}, {page.eval(tall)}")
        late = "[...document.querySelectorAll('#stragglers select')].find(e => e.value === 'samples')"
        page.eval(f"(e => {{ e.value = 'late'; e.dispatchEvent(new Event('change')); }})({late})")
        equal(page.console, [], "console at the end")
    run = synthetic(place, "healthy")
    equal(report(run)[0].read_text().count('"flames":[]'), 1, "no flame without samples")


HOSTILE = ["</script><script>document.body.dataset.owned=1</script>", "<img src=x onerror=\"document.body.dataset.owned=1\">", "\"'><b>bold</b>&amp;",
           "=HYPERLINK(\"http://example.com\")", "\u202egnp.exe", "a\u2028b\u0000c\u001b[31m", "@LOCKSTEP_DATA@ $& $1 -->", "x" * 5000, "\U0001f600 Größe"]


def hostile(place):
    """Names that would break a page that pastes them."""
    program = place / "<img src=x onerror=document.body.dataset.owned=1>.py"
    program.write_text("""import lockstep, sys, time
names = %r
for step in range(12):
    lockstep.step()
    for name in names:
        with lockstep.range(name.replace("\\0", ""), "forward"):
            time.sleep(0.0005)
    with lockstep.range("input<i>", "input"):
        time.sleep(0.004)
""" % [name for name in HOSTILE])
    run = place / "run"
    done = jobs.run([jobs.LOCKSTEP, "run", "-o", run, "--after", "none", "--", jobs.PYTHON, program, *[name for name in HOSTILE if "\0" not in name], b"\xff\xfe<x>"], place)
    equal(done.returncode, 0, done.stderr.decode())
    path, analysis, _ = report(run)
    text = path.read_text()
    equal(text.count("</script>"), 2, "ends of scripts")
    check("\u202e" not in text and "\u2028" not in text and "\x1b" not in text, "characters that deceive")
    with Browser() as browser:
        page = browser.open(path)
        sound(page, path)
        equal(page.eval("document.body.dataset.owned ?? null"), None, "a name ran as a script")
        equal(page.eval("document.querySelectorAll('#page img, #page b b, #page i > *').length"), 0, "a name became an element")
        tips, width = "", page.eval("document.querySelector('[data-plot=timeline]').clientWidth")
        for x in range(70, width - 10, 7):
            tips += "\n".join(page.hover("[data-plot=timeline]", x, 6)) + "\n"
        for name in ("</script><script>", "<img src=x", "=HYPERLINK", "\\u202egnp.exe", "Größe"):
            check(name in tips, f"{name!r} is shown as it is: {tips[:500]}")
        page.eval("document.querySelectorAll('details').forEach(d => d.open = true)")
        for button in page.eval("[...document.querySelectorAll('[data-csv]')].map(e => e.dataset.csv)"):
            for row in saved(browser, page, button):
                for cell in row.values():
                    check(not (cell and cell[0] in "=+@" or cell and cell[0] == "-" and not cell[1:].replace(".", "").replace("e-", "").isdigit()), f"{button}: a formula: {cell}")
        equal(page.console, [], "console")


def bundle(place):
    """npm ci && npm run build gives the committed page, byte for byte."""
    web = jobs.SOURCE / "analysis/report/web"
    if not shutil.which("npm"):
        print("skipped: there is no npm; the committed bundle was not rebuilt")
        sys.exit(77)
    for name in ("package.json", "package-lock.json", "build.mjs", "src"):
        (shutil.copytree if (web / name).is_dir() else shutil.copy)(web / name, place / name)
    done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=0"], cwd=place, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        print("skipped: npm ci failed, is there a network? " + " ".join(done.stderr.split())[-200:])
        sys.exit(77)
    done = subprocess.run(["npm", "run", "build"], cwd=place, capture_output=True, text=True, timeout=60)
    equal(done.returncode, 0, done.stderr)
    check((place / "dist/shell.html").read_bytes() == (web / "dist/shell.html").read_bytes(),
          "dist/shell.html is not what its sources give: cd analysis/report/web && npm ci && npm run build")


CASES = {"Demo": demo, "Kinds": kinds, "Imported": imported, "Flames": flames, "Hostile": hostile, "Bundle": bundle}


def main(case):
    if case != "Bundle" and chromium() is None:
        print("skipped: there is no Chromium (Debian package chromium); the page was not opened")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as place:
        CASES[case](pathlib.Path(place))
    print(f"{case}: passed")


if __name__ == "__main__":
    main(sys.argv[2])
