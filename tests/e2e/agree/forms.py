"""The further forms in which a run is shown: rows behind findings, all tables, whatif, info, exports, baselines, merge."""

import base64
import csv
import functools
import json
import pathlib
import re
import shutil
import sys
import tempfile
import zlib

import jobs

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "export"))
import timeline
from views import UNITS, Views

csv.field_size_limit(1 << 30)  # Names of kernels.
BYTES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def strict(text):
    """JSON without NaN and infinities, which Python would take."""
    def refuse(constant):
        raise ValueError(f"{constant} in JSON")
    return json.loads(text, parse_constant=refuse)


def unpacked(column):
    """A packed column of the page (analysis/report/html/packed.h)."""
    raw, n, width = zlib.decompress(base64.b64decode(column["packed"])), column["n"], column["width"]
    unknown = (1 << 8 * width) - 1
    raws = [sum(raw[byte * n + i] << 8 * byte for byte in range(width)) for i in range(n)]
    return [None if value == unknown else column["base"] + column["unit"] * value for value in raws]


def measure(text):
    """'14.3 ms', '2.1 MB', '7.15 GB/s', '83 %', '1 842' -> (value in ns, bytes, fractions, as is; half of the last digit);
    None: no number."""
    match = re.fullmatch(r"(< )?(-?[\d ]*\d(?:\.\d+)?)(?: (ns|us|ms|s|min|B|kB|MB|GB|TB|kB/s|MB/s|GB/s|%))?", text.strip())
    if not match:
        return None
    number, unit = match.group(2).replace(" ", ""), match.group(3)
    digits = len(number.split(".")[1]) if "." in number else 0
    factor = {None: 1, "%": 0.01, "min": 60e9}.get(unit) or UNITS.get(unit) or BYTES[unit.removesuffix("/s")]
    if match.group(1):  # Anything below it.
        return 0.0, float(number) * factor
    # Three digits are shown: of a whole number of bytes or ns all may be.
    return float(number) * factor, 0.5001 * 10 ** -digits * factor


def shows(text, value):
    """Whether the text is this number, to its printed precision."""
    read = measure(text)
    return read is not None and abs(read[0] - value) <= max(read[1], 1e-9 * abs(value))


class Forms(Views):
    def may_fail(self, *words):
        """Its output; None where the run does not have what the command needs, which it says in three lines."""
        done = jobs.run([jobs.LOCKSTEP, *words], "/", timeout=300)
        if done.returncode in (0, 3):
            return done.stdout.decode()
        if done.returncode != 1 or not re.fullmatch(r"error: .+\n(  .+\n){1,2}", done.stderr.decode()):
            raise AssertionError(f"lockstep {' '.join(map(str, words))}: exit {done.returncode}: {done.stderr.decode()[:300]}")
        return None

    def compared(self, *words):
        """Output of diff; None for runs that cannot be compared. 4: the new one is slower."""
        done = jobs.run([jobs.LOCKSTEP, *words], "/", timeout=300)
        if done.returncode == 1 and re.fullmatch(r"error: these runs cannot be compared.+\n(  .+\n){1,2}", done.stderr.decode()):
            return None
        assert done.returncode in (0, 3, 4), f"exit {done.returncode}: {done.stderr.decode()[:300]}"
        return done.stdout.decode()

    @functools.cached_property
    def explained(self):
        """The text of --explain for each finding."""
        return [self.lockstep("analyze", self.run, "--explain", i + 1) for i in range(len(self.json["findings"]))]

    @functools.cached_property
    def table_names(self):
        return [name for name in re.findall(r"^  ([a-z][a-z-]+) ", self.lockstep("analyze", "--table", "help"), re.M) if name != "lockstep"]

    @functools.lru_cache(maxsize=None)
    def table_forms(self, name):
        """(text, JSON, CSV's rows) of one table, of all ranks."""
        with tempfile.TemporaryDirectory() as place:
            words = ["analyze", self.run, "--table", name, "--rank", "all", "--top", "0"]
            text = self.lockstep(*words)
            self.lockstep(*words, "--json", place + "/json", "--csv", place + "/csv")
            with open(place + "/json") as file, open(place + "/csv") as rows:
                return text, strict(file.read()), self.rows(rows.read())

    @functools.cached_property
    def whatif(self):
        """(text, JSON), or None for a run that cannot be replayed."""
        text = self.may_fail("whatif", self.run, "-q")
        return text and (text, strict(self.lockstep("whatif", self.run, "--json", "-")))

    @functools.cached_property
    def info(self):
        """(text, JSON)"""
        return self.may_fail("info", self.run), strict(self.may_fail("info", self.run, "--json", "-"))

    @functools.cached_property
    def merged(self):
        """(text, JSON) of merge."""
        return self.may_fail("merge", self.run), strict(self.may_fail("merge", self.run, "--json", "-"))

    @functools.cached_property
    def baseline(self):
        return strict(self.lockstep("diff", self.run, "--save-baseline", "-"))

    @functools.cached_property
    def diff_text(self):
        return self.with_its_baseline()

    @functools.cached_property
    def rank_tables(self):
        """Table -> rows of all ranks, of the CSV export; the timeline's tables are in .exported."""
        self.exported
        out = self.run.parent / (self.run.name + "-csv")
        return {path.stem: self.rows(path.read_text()) for path in out.glob("*.csv") if not path.stem.startswith("timeline_")}

    @functools.cached_property
    def kineto(self):
        """Rank -> events."""
        out = self.run.parent / (self.run.name + "-kineto")
        self.lockstep("export", self.run, "--format", "kineto", "-o", out, "--no-findings")
        return {int(re.search(r"rank-(\d+)", path.name).group(1)): strict(path.read_text())["traceEvents"] for path in out.glob("rank-*.json")}

    @functools.cached_property
    def chrome(self):
        out = self.run.parent / (self.run.name + "-chrome.json")
        said = self.lockstep("export", self.run, "--format", "chrome", "-o", out, "--no-findings")
        return said, strict(out.read_text())["traceEvents"]

    @functools.cached_property
    def perfetto(self):
        """The timeline of ui.perfetto.dev, or None where nothing can read it."""
        if not timeline.have_protoc():
            return None
        out = self.run.parent / (self.run.name + ".pftrace")
        self.lockstep("export", self.run, "-o", out, "--no-findings")
        return timeline.Timeline(out.read_bytes())

    @functools.cached_property
    def otf2(self):
        """What otf2-print says of the archive, or None without OTF2."""
        if shutil.which("otf2-print") is None:
            return None
        out = self.run.parent / (self.run.name + "-otf2")
        done = jobs.run([jobs.LOCKSTEP, "export", self.run, "--format", "otf2", "-o", out, "--no-findings"], "/", timeout=300)
        if b"built without otf2" in done.stderr:
            return None
        assert done.returncode in (0, 3), done.stderr.decode()
        said = jobs.run(["otf2-print", out / "traces.otf2"], "/", timeout=300)
        assert said.returncode == 0, said.stderr.decode()
        return said.stdout.decode(errors="replace")

    @functools.cached_property
    def texts(self):
        """Where it stands -> everything that is written for people."""
        said = {"analyze": self.text, "diff": self.diff_text, "info": self.info[0], "merge": self.merged[0], "export": self.chrome[0]}
        said |= {f"--explain {i + 1}": text for i, text in enumerate(self.explained)}
        said |= {f"--table {name}": self.table_forms(name)[0] for name in self.table_names}
        if self.whatif:
            said["whatif"] = self.whatif[0]
        return said

    @functools.cached_property
    def documents(self):
        """Where it stands -> every JSON."""
        found = {"analyze": self.json, "page": self.page, "diff": self.diff, "info": self.info[1], "merge": self.merged[1], "baseline": self.baseline}
        if self.whatif:
            found["whatif"] = self.whatif[1]
        return found
