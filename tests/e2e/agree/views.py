"""Every view of one run: what each command says of it."""

import csv
import functools
import io
import json
import re
import tempfile

import jobs

TERMS = ["compute_ns", "blocked_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns", "exposed_copy_ns", "idle_ns"]
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def lower_median(values):
    return sorted(values)[(len(values) - 1) // 2]


def lower_quantile(values, p):
    return sorted(values)[int(p * (len(values) - 1))]


def nanoseconds(text):
    """'14.3 ms' -> (14.3e6, half of its last digit)"""
    number, unit = re.fullmatch(r"([0-9.]+) (ns|us|ms|s)", text.strip()).groups()
    digits = len(number.split(".")[1]) if "." in number else 0
    return float(number) * UNITS[unit], 0.5001 * 10 ** -digits * UNITS[unit]


@functools.lru_cache(maxsize=None)
def flags_of(*command):
    """The flags that a command of Lockstep has."""
    return set(re.findall(r"--[a-z][a-z-]+", jobs.run([jobs.LOCKSTEP, *command, "--help"], "/").stdout.decode()))


class Views:
    def __init__(self, run):
        self.run = run

    def lockstep(self, *words):
        done = jobs.run([jobs.LOCKSTEP, *words, "--quiet"], "/", timeout=300)
        if done.returncode not in (0, 3):
            raise AssertionError(f"lockstep {' '.join(map(str, words))}: exit {done.returncode}: {done.stderr.decode()[:300]}")
        return done.stdout.decode()

    @functools.cached_property
    def json(self):
        return json.loads(self.lockstep("analyze", self.run, "--json", "-"))

    @functools.cached_property
    def text(self):
        return self.lockstep("analyze", self.run)

    @functools.cached_property
    def sentences(self):
        """Where it stands -> what is said to the user in full sentences."""
        said = {"verdict": self.json["verdict"], "remarks": " ".join(self.json["remarks"])}
        for i, finding in enumerate(self.json["findings"]):
            for part in ("headline", "evidence", "action"):
                said[f"finding {i + 1} {finding['id']} {part}"] = finding[part]
        for loss in self.json["losses"]:
            said[f"loss {loss['name']}"] = loss["remedy"]
        return said

    @property
    def source(self):
        """"torch", "nsys" or "lockstep": what recorded it."""
        if not (self.json["run"]["run_id"] or "").startswith("import-"):
            return "lockstep"
        return "nsys" if (self.json["run"]["command"] or "").startswith("Nsight") else "torch"

    @functools.cached_property
    def page(self):
        html = self.lockstep("report", self.run, "-o", "-")
        return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S).group(1))

    @functools.cached_property
    def diff(self):
        return json.loads(self.with_its_baseline("--json", "-"))

    def with_its_baseline(self, *words):
        """Output of diff of the run with its own baseline: with itself it is not compared."""
        with tempfile.TemporaryDirectory() as place:
            self.lockstep("diff", self.run, "--save-baseline", place + "/base.json")
            return self.lockstep("diff", place + "/base.json", self.run, *words)

    @functools.lru_cache(maxsize=None)
    def table(self, name, *words):
        """Rows with numbers where numbers are; None: empty."""
        return self.rows(self.lockstep("analyze", self.run, "--table", name, "--csv", "-", "--top", "0", *words))

    @functools.cached_property
    def exported(self):
        """Table -> rows, of what `lockstep export --format csv` writes of the timeline."""
        out = self.run.parent / (self.run.name + "-csv")
        self.lockstep("export", self.run, "--format", "csv", "-o", out, "--no-findings")
        return {path.stem[len("timeline_"):]: self.rows(path.read_text()) for path in out.glob("timeline_*.csv")}

    @staticmethod
    def rows(text):
        def value(cell):
            if cell == "":
                return None
            try:
                return int(cell)
            except ValueError:
                try:
                    return float(cell)
                except ValueError:
                    return cell
        return [{key: value(cell) for key, cell in row.items()} for row in csv.DictReader(io.StringIO(text))]

    @property
    def uses_torch(self):
        return bool(self.json["buckets"]) or (self.run / "manifest.json").exists() and "torch" in (self.run / "manifest.json").read_text()

    @functools.cached_property
    def torch_kernels(self):
        """Kernels of PyTorch's ran; None: no kernels are known."""
        names = [row["kernel"] for row in self.table("kernels")] if self.gpu else []
        return any("at::native::" in str(name) for name in names) if names else None

    @property
    def gpu(self):
        return self.json["run"]["gpu_ranks"] > 0

    @property
    def usable(self):
        """The steps that means are over."""
        return [s for s in self.json["steps"] if s["complete"] and not s["warmup"] and s["step_ns"] is not None]

    @property
    def step_ns(self):
        """What shares are of: a step, or the window."""
        return sum(self.json["summary"][term] or 0 for term in TERMS)

    def whole_of(self, finding):
        """What a finding's price is of: that, or a step since a rank drifts."""
        return finding["of_step_ns"] or self.step_ns
