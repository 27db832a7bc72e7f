"""The parts of lockstep report's page that many ranks, GPUs and small screens need: what they show is what the files hold, they can be
used without a pointer, and a checker of accessibility finds nothing.

usage: parts_test.py BUILD_DIR CASE
"""

import base64
import csv
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import h5py

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import jobs
from browser import Browser, chromium
from report_test import check, described, equal, number, report, saved, sound, synthetic

# More ranks than the map has rows. Rank 301 is late in all steps, rank 40 in some; in one step another one is, by far.
MANY = """ranks 450
nodes 9
steps 24
seed 4
network alpha=20us bandwidth=20GB/s
jitter 1%
slow rank=301 factor=1.3
slow rank=40 factor=1.5 steps=10-17
late rank=100 by=80ms steps=6-6
step
  forward 3ms
  backward 5ms
  allreduce 1MiB
end
"""
# GPU 2 is throttled. Two kinds of collectives, messages along a line of ranks.
SENSED = """ranks 4
steps 24
seed 6
gpu
network alpha=20us bandwidth=20GB/s
jitter 0.5%
sensors period=20ms clock=1980
throttle rank=2 clock=1200 reasons=64
slow rank=2 factor=1.4
step
  input 300us
  kernel 8ms count=4 name=gemm
  nccl allreduce 8MiB
  nccl allgather 1MiB
  join
  sync
end
"""
PHONE = 390  # CSS pixels.


def resized(page, width, height=900):
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
    page.wait(f"innerWidth === {width}")


def marks_that_repeat(page, width):
    """Durations that a plot writes at two places beside each other, drawn anew for this width."""
    page.eval("""(() => { const its = CanvasRenderingContext2D.prototype, was = its.fillText; window.drawn = []; window.drawnNoMore = () => { its.fillText = was; };
      its.fillText = function (text, x, y) { window.drawn.push([this.canvas, this.canvas.width, String(text), Math.round(x), Math.round(y)]); return was.apply(this, arguments); }; })()""")
    resized(page, width)
    page.wait("window.drawn.some(d => / (ns|us|ms|s)$/.test(d[2]))")
    return page.eval("""(() => { drawnNoMore(); const at = new Map(), twice = new Set(), canvases = [];
      for (const [canvas, w, text, x, y] of window.drawn) {
        if (!/^[0-9.]+ (ns|us|ms|s)$/.test(text)) continue;
        if (!canvases.includes(canvas)) canvases.push(canvas);
        const key = [canvases.indexOf(canvas), w, y, text].join('|');
        if (at.has(key) && at.get(key) !== x) twice.add(text);
        at.set(key, x);
      }
      return [...twice]; })()""")


def parted(page, place):
    """Last lines of printed A4 pages that belong to what the next page begins with: headings, and what is said of a plot."""
    (place / "page.pdf").write_bytes(base64.b64decode(page.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True)["data"]))
    text = subprocess.run(["pdftotext", "-layout", place / "page.pdf", "-"], capture_output=True, text=True, check=True).stdout
    ends = [[line.strip() for line in sheet.splitlines() if line.strip()][-1:] for sheet in text.split("\f")]
    check(len(ends) > 4, f"{len(ends)} pages")
    belong = page.eval("[...document.querySelectorAll('h2, h3, .note, .legend')].filter(e => e.tagName[0] === 'H' || e.nextElementSibling?.matches('.plot, .legend, .table')).map(e => e.textContent)")
    joined = [" ".join(each.split()) for each in belong]
    return [end for each in ends for end in each if any(" ".join(end.split()) in one for one in joined)]


def waits_of_files(run):
    """(awaited, waiting) -> ns in collectives, from timeline.h5."""
    sums = {}
    with h5py.File(run / "timeline.h5") as file:
        last = file["collectives/last_rank"][:]
        members = {key: file[f"collective_ranks/{key}"][:] for key in ("collective", "rank", "wait_ns")}
    for collective, rank, wait in zip(*members.values()):
        if last[collective] >= 0 and wait > 0 and rank != last[collective]:
            key = (int(last[collective]), int(rank))
            sums[key] = sums.get(key, 0) + int(wait)
    return sums


def many(place):
    """450 ranks: what is named is seen, and each number is the files'."""
    run = described(place, "many", MANY)
    path, analysis, _ = report(run)
    named = [s["rank"] for s in analysis["stragglers"]]
    equal(sorted(named), [40, 301], "stragglers")
    cells = {(cell["rank"], step["index"]): cell for step in analysis["steps"] for cell in step["ranks"]}
    with Browser() as browser:
        page = browser.open(path)
        sound(page, path)
        equal(marks_that_repeat(page, 1440), [], "marks of axes that cannot be told apart")
        resized(page, 1240)
        # A named rank's own row, where the map has only the larger of two.
        rows = saved(browser, page, "heatmap-named")
        equal(sorted({int(row["rank"]) for row in rows}), sorted(named), "rows at the top")
        equal(len(rows), 2 * 24, "their cells")
        for row in rows:
            exact = cells[int(row["rank"]), int(row["step"])]["compute_ns"]
            check(abs(int(row["compute_ns"]) - exact) <= exact / 256, f"{row}: computes {exact}")
        # Its colour is not that of the others, though one cell is ten times as late: the row in the map of rank 301 against that of rank 200.
        shades = page.eval("""(c => { const g = c.getContext('2d'), P = 2, top = 4 + P * 12 + 9, tall = c.clientHeight - top - 50;
          const at = (rank) => [...g.getImageData(Math.round(c.width / 2), Math.floor((top + (Math.floor(rank / 2) + 0.5) * tall / 225) * c.height / c.clientHeight), 1, 1).data];
          return [at(301), at(200), at(310)]; })(document.querySelector('[data-plot=heatmap]'))""")
        apart = [sum(abs(a - b) for a, b in zip(shades[0], other)) for other in shades[1:]]
        check(min(apart) > 60, f"colours of rank 301 and of two others: {shades}")
        tip = page.hover("[data-plot=heatmap]", 200, 4 + 6)
        equal(tip[0].split(" · ")[0], f"rank {named[0]}", "the tip of the first row")
        check(len(tip[0].split(" · ")) == 3, f"with its host: {tip}")
        # Who waits for whom. The cells of two ranks that share a column show the longer one.
        truth = waits_of_files(run)
        rows = {(int(row["awaited_rank"]), int(row["waiting_rank"])): int(row["collective_ns"]) for row in saved(browser, page, "waits")}
        awaited = sorted({key[0] for key in rows})
        check({40, 100, 301} <= set(awaited), f"awaited: {awaited}")
        for (of, waiting), ns in rows.items():
            equal(ns, max(truth.get((of, waiting), 0), truth.get((of, waiting + 1), 0)), f"{waiting} waits for {of}")
        rows = saved(browser, page, "step-lengths")
        with h5py.File(run / "timeline.h5") as file:
            lengths = dict(zip(file["steps/index"][:].tolist(), file["steps/step_ns"][:].tolist()))
        equal({int(row["step"]): int(row["step_ns"]) for row in rows}, {step: lengths[step] for step in (int(row["step"]) for row in rows)}, "lengths of steps")
        check(len(rows) >= 20 and "not to scale" in page.eval("document.getElementById('heatmap').innerText"), "the step that is ten times as long is told apart")
        # Found by name: the bar of a rank that is on no page yet.
        page.eval("document.getElementById('search').focus()")
        for key in "rank 301":
            page.key(key)
        equal(page.eval("document.querySelector('#found button').textContent").split(" node")[0], "rank 301", "the first that is found")
        page.key("Enter")
        page.wait("(r => r.top > -60 && r.top < innerHeight)(document.getElementById('ranks').getBoundingClientRect())")
        page.key("ArrowDown")
        page.key("ArrowUp")
        check(page.tip() and page.tip()[0].startswith("rank 301 "), f"the rank that was looked for: {page.tip()}")
        page.eval("(e => { e.value = 'no such name'; e.dispatchEvent(new Event('input')); })(document.getElementById('search'))")
        check("nothing on this page" in page.eval("document.getElementById('found').textContent"), "nothing found is said")
        # On a phone: no word of the map ends outside of it, and an axis of sizes has marks though there is one size.
        page.eval("""(own => { window.drawn = []; CanvasRenderingContext2D.prototype.fillText = function (text, x, ...more) {
          const end = this.textAlign === 'left' ? (this.getTransform().a * (x + this.measureText(text).width)) / this.canvas.width : 0;
          window.drawn.push([this.canvas.closest('[data-plot]')?.dataset.plot ?? '', String(text), end]);
          return own.call(this, text, x, ...more); }; })(CanvasRenderingContext2D.prototype.fillText)""")
        page.call("Emulation.setDeviceMetricsOverride", width=390, height=12000, deviceScaleFactor=1, mobile=True)
        page.eval("document.getElementById('theme').click()")
        page.wait("['heatmap', 'scatter'].every(name => window.drawn.some(([plot]) => plot === name))")
        drawn = page.eval("window.drawn")
        check(any("logarithm" in text for plot, text, _ in drawn if plot == "heatmap"), f"words of the map: {drawn}")
        equal([text for plot, text, end in drawn if plot == "heatmap" and end > 1.001], [], "words that a phone cuts")
        marks = {text for plot, text, _ in drawn if plot == "scatter" and re.fullmatch(r"[\d.]+ [kM]B", text)}
        check(len(marks) >= 2 and "1.05 MB" in marks, f"marks of sizes: {marks}")
        equal(page.console, [], "console at the end")
        page.call("Emulation.clearDeviceMetricsOverride")
        equal(parted(page, place), [], "ends of printed pages")
        # A measure of which nothing is known of the named ranks.
        text, changed = re.subn(r'("pinned":\{.*?"delay_ns":)\{[^}]*\}', r"\1null", path.read_text(), count=1, flags=re.DOTALL)
        equal(changed, 1, "the page's data")
        path.write_text(text)
        page = browser.open(path)
        sound(page, path)
        equal({row["delay_ns"] for row in saved(browser, page, "heatmap-named")}, {""}, "delays of the named ranks")


def sensed(place):
    """GPUs: sensors, kernels beside another rank's, bandwidths; two steps; a phone and paper."""
    run = described(place, "sensed", SENSED)
    path, analysis, _ = report(run)
    with Browser() as browser:
        page = browser.open(path)
        sound(page, path)
        clocks = {}
        for row in saved(browser, page, "sensors"):
            clocks.setdefault(int(row["rank"]), set()).add(number(row["sm_clock_mhz"]))
        equal({rank: values - {None} for rank, values in clocks.items()}, {rank: {1200 if rank == 2 else 1980} for rank in range(4)}, "clocks")
        # A kernel of the named rank, and what it takes on another one.
        kernels = {row["kernel"]: row for row in saved(browser, page, "kernels-rank-2")}
        beside = next(key for key in kernels["gemm"] if key.startswith("total_ns_of_rank_"))
        check(1.3 < int(kernels["gemm"]["total_ns"]) / int(kernels["gemm"][beside]) < 1.5, f"gemm: {kernels['gemm']}")
        plots = page.eval("[...document.querySelectorAll('[data-plot]')].map(e => e.dataset.plot)")
        check({"waits", "bandwidths", "sensors", "step-lengths"} <= set(plots), f"plots: {plots}")
        legend = page.eval("document.querySelector('#collectives').innerText")
        check("all-reduce (1)" in legend and "all-gather (1)" in legend, f"two kinds: {legend[-300:]}")
        # Two steps side by side: another one, of its own, and gone again.
        page.eval("document.getElementById('timeline-beside').click()")
        chosen = page.eval("['timeline-step', 'timeline-step-2'].map(id => document.getElementById(id).selectedOptions[0].textContent)")
        check(chosen[0] != chosen[1], f"two steps: {chosen}")
        check(page.eval("(c => c.width > 100 && c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v))(document.querySelector('[data-plot=timeline-2]'))"), "the second one is drawn")
        page.eval("document.getElementById('timeline-beside').click()")
        equal(page.eval("document.querySelectorAll('[data-plot^=timeline]').length"), 1, "one step again")
        # Nothing is wider than a phone but tables, which scroll, by keyboard, too.
        resized(page, PHONE)
        page.eval("document.querySelectorAll('details').forEach(d => d.open = true)")
        equal(page.eval("document.documentElement.scrollWidth"), PHONE, "width on a phone")
        check(page.eval("[...document.querySelectorAll('.table')].some(t => t.scrollWidth > t.clientWidth)"), "some table is wider")
        equal(page.eval("[...document.querySelectorAll('.table')].filter(t => t.scrollWidth > t.clientWidth && t.tabIndex !== 0).length"), 0, "tables that no key scrolls")
        equal(page.console, [], "console at the end")
        # On paper everything is within its width, light, and what is folded is open.
        page = browser.open(path, dark=True)
        page.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        resized(page, 718)
        page.eval("dispatchEvent(new Event('beforeprint'))")
        check(page.eval("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), "nothing is wider than the paper")
        equal(page.eval("[...document.querySelectorAll('.findings details:not([open])')].length"), 0, "folded rows")
        equal(page.eval("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)", "paper")
        cut = page.eval("[...document.querySelectorAll('.plot')].filter(p => p.clientWidth && [...p.querySelectorAll('canvas')].some(c => c.getBoundingClientRect().width > p.clientWidth + 1)).length")
        equal(cut, 0, "plots that are cut")
        page.eval("dispatchEvent(new Event('afterprint'))")
        check(page.eval("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)", "as it was before")
        equal(page.console, [], "console after printing")


def messages(place):
    """Stages of a pipeline wait for each other's messages: the cells are the pairs of the file, both ways."""
    run = synthetic(place, "pipeline")
    path, _, _ = report(run)
    with h5py.File(run / "timeline.h5") as file:
        pairs = zip(*(file[f"p2p_pairs/{key}"][:].tolist() for key in ("source_rank", "destination_rank", "late_sender_ns", "late_receiver_ns")))
    truth = {}
    for source, destination, sender, receiver in pairs:
        for awaited, waiting, ns in ((source, destination, sender), (destination, source, receiver)):
            truth[awaited, waiting] = truth.get((awaited, waiting), 0) + ns
    with Browser() as browser:
        page = browser.open(path)
        sound(page, path)
        rows = {(int(row["awaited_rank"]), int(row["waiting_rank"])): int(row["message_ns"]) for row in saved(browser, page, "waits")}
    check(any(rows.values()), "somebody waits for a message")
    for pair, ns in rows.items():
        equal(ns, truth.get(pair, 0), f"{pair[1]} waits for {pair[0]}")
    equal(sum(rows.values()), sum(truth.values()), "all waits for messages")


VIOLATIONS = """axe.run(document, {resultTypes: ['violations']}).then(result => result.violations.map(
  one => one.id + ': ' + one.nodes.slice(0, 3).map(node => node.html.slice(0, 200)).join(' | ')))"""


def accessible(place):
    """axe-core finds nothing, in both themes, on a desktop and on a phone, with all that opens open."""
    web = jobs.SOURCE / "analysis/report/web"
    if not shutil.which("npm"):
        print("skipped: there is no npm, which brings axe-core")
        sys.exit(77)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(web / name, place / name)
    done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=0"], cwd=place, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        print("skipped: npm ci failed, is there a network? " + " ".join(done.stderr.split())[-200:])
        sys.exit(77)
    axe = (place / "node_modules/axe-core/axe.min.js").read_text()
    runs = [described(place, "sensed", SENSED), synthetic(place, "pipeline"), synthetic(place, "no_steps"), synthetic(place, "missing_rank")]
    with Browser() as browser:
        for run in runs:
            path, _, _ = report(run)
            for dark in (False, True):
                page = browser.open(path, dark=dark)
                page.call("Runtime.evaluate", expression=axe)
                for width in (1440, PHONE):
                    resized(page, width)
                    page.eval("""document.querySelectorAll('details').forEach(d => d.open = true), document.getElementById('timeline-2') ?? document.getElementById('timeline-beside')?.click(),
                      (e => { e.value = 'a'; e.dispatchEvent(new Event('input')); })(document.getElementById('search')), 1""")
                    equal(page.eval(VIOLATIONS), [], f"{run.name}, {'dark' if dark else 'light'}, {width} wide")
        # The checker sees what is wrong.
        page.eval("document.querySelector('canvas').removeAttribute('aria-label'), document.getElementById('search').removeAttribute('aria-label'), document.getElementById('search').removeAttribute('placeholder'), 1")
        check(len(page.eval(VIOLATIONS)) >= 1, "a control without a name is found")


CASES = {"Many": many, "Sensed": sensed, "Messages": messages, "Accessible": accessible}


def main(case):
    if chromium() is None:
        print("skipped: there is no Chromium (Debian package chromium); the page was not opened")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as place:
        CASES[case](pathlib.Path(place))
    print(f"{case}: passed")


if __name__ == "__main__":
    main(sys.argv[2])
