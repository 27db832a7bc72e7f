"""lockstep.load: the tables of a run as pandas frames.

Read through h5py, from the files themselves: their columns say what their codes, texts and clocks are
(docs/trace-format.md), so this works without the programs, and a table of millions of rows takes no detour through text.
pandas and h5py are imported here and nowhere else.
"""

import glob
import os
import re
import subprocess
from typing import Any, Dict, Iterator, List, Union

try:
    import h5py
    import numpy as np
    import pandas as pd
except ImportError as error:
    raise ImportError("lockstep.load needs pandas and h5py (%s); try: pip install 'lockstep-profiler[load]'" % error) from error

_NO_ROW = 4294967295              # kNone
_NO_TIME = -9223372036854775808   # kNoTime
_RANK_FILE = re.compile(r"rank-(\d+)(?:\.p(\d+))?\.h5$")


def _attribute(column: Any, name: str) -> str:
    value = column.attrs.get(name, "")
    return value.decode() if isinstance(value, bytes) else str(value)


class _Texts:
    """The interned texts of a file."""

    def __init__(self, file: Any) -> None:
        if "strings" in file:
            data = file["string_bytes/value"][:].tobytes()
            begins = file["strings/offset_bytes"][:].tolist()
            sizes = file["strings/length_bytes"][:].tolist()
            self.texts = [data[at:at + size].decode("utf-8", "replace") for at, size in zip(begins, sizes)]
        else:
            self.texts = []

    def of(self, rows: Any) -> Any:
        used, places = np.unique(rows, return_inverse=True)
        texts = [self.texts[row] if row < len(self.texts) else None for row in used.tolist()]
        # Two rows of `strings` may hold one text: categories are unique.
        names = list(dict.fromkeys(text for text in texts if text is not None))  # In the order of `strings`.
        code_of = {name: code for code, name in enumerate(names)}
        codes = np.array([-1 if text is None else code_of[text] for text in texts], "i8")
        return pd.Categorical.from_codes(codes[places], categories=names)


class _Clock:
    """Rank time to cluster time, as docs/trace-format.md has it; all differences in int64."""

    def __init__(self, timeline: Any, rank: int) -> None:
        of_rank = timeline["clock/rank"][:] == rank if "clock" in timeline else np.zeros(0, bool)
        self.knots = timeline["clock/local_ns"][:][of_rank] if len(of_rank) else np.zeros(0, "i8")
        self.offsets = timeline["clock/offset_ns"][:][of_rank] if len(of_rank) else np.zeros(0, "i8")

    def cluster(self, local: Any) -> Any:
        """int64 in, int64 out; kNoTime stays what it is. Without knots: the rank is its own reference."""
        if not len(self.knots):
            return local
        given, local = local, np.where(local == _NO_TIME, self.knots[0], local)
        knots, offsets = self.knots, self.offsets
        i = np.clip(np.searchsorted(knots, local, "right") - 1, 0, max(len(knots) - 2, 0))
        j = np.minimum(i + 1, len(knots) - 1)
        slope = (local - knots[i]) / np.maximum(knots[j] - knots[i], 1)
        cluster = local + offsets[i] + np.rint(slope * (offsets[j] - offsets[i])).astype("i8")
        return np.where(given == _NO_TIME, given, cluster)


class _ClockOfRows:
    """The same for a table whose rows are of the ranks in its column `rank`."""

    def __init__(self, timeline: Any, ranks: Any) -> None:
        self.ranks = ranks
        self.clocks = {rank: _Clock(timeline, rank) for rank in np.unique(ranks).tolist()}

    def cluster(self, local: Any) -> Any:
        cluster = local.copy()
        for rank, clock in self.clocks.items():
            rows = self.ranks == rank
            cluster[rows] = clock.cluster(local[rows])
        return cluster


class _LeftOut:
    """A column that a small file leaves out, because one value stands in every row; it is used as h5py's are."""

    def __init__(self, line: str, rows: int) -> None:
        self.name, kind, unit, value, *code = line.split(" ", 4)
        self.values = np.full(rows, int(value), np.dtype("<%s%d" % (kind[0], int(kind[1:]) // 8)))
        self.attrs = {"unit": unit, "codes": " ".join([value, *code]) if code else ""}
        if unit == "ns" and int(value) == _NO_TIME:  # A moment; no clock has anything to convert.
            self.attrs["clock"] = "other"

    def __getitem__(self, rows: Any) -> Any:
        return self.values[rows]


def _columns(group: Any, rows: int) -> Any:
    """(name, column) of all, in the order of their names."""
    left_out = [_LeftOut(line, rows) for line in _attribute(group, "left_out").splitlines()]
    return sorted([*group.items(), *((column.name, column) for column in left_out)], key=lambda one: one[0])


def _frame(group: Any, texts: _Texts, clock: Any = None) -> Any:
    rows = min((len(column) for column in group.values()), default=0)
    columns: Dict[str, Any] = {}
    for name, column in _columns(group, rows):
        values = column[:rows]
        unit, codes, time = (_attribute(column, key) for key in ("unit", "codes", "clock"))
        if unit == "string":
            columns[name] = texts.of(values)
        elif codes:
            numbers, words = zip(*(line.split(" ", 1) for line in codes.split("\n")))
            known = dict(zip(map(int, numbers), words))
            # What a later version wrote stays visible, as its number.
            found, places = np.unique(values, return_inverse=True)
            named = [known.get(code, str(code)) for code in found.tolist()]
            names = list(dict.fromkeys([*words, *named]))
            place_of = np.array([names.index(one) for one in named], "i8")
            columns[name] = pd.Categorical.from_codes(place_of[places], categories=names)
        elif unit == "bool" and len(values) and values.max() <= 1:
            columns[name] = values.astype(bool)
        elif time:
            none = values == _NO_TIME
            cluster = clock.cluster(values) if time == "rank" and clock is not None else values
            columns[name] = pd.array(cluster, dtype="Int64") if none.any() else cluster
            if none.any():
                columns[name][none] = pd.NA
        elif unit in ("id", "rows") and values.dtype == np.uint32 and (values == _NO_ROW).any():
            columns[name] = pd.array(values.astype("i8"), dtype="Int64")
            columns[name][values == _NO_ROW] = pd.NA
        else:
            columns[name] = values
    return pd.DataFrame(columns)


class _Tables:
    """The tables of one file: `tables`, and a frame for each name in brackets."""

    def __init__(self, path: str, clock: Any = None) -> None:
        self.path = path
        self._clock = clock
        with h5py.File(path, "r") as file:
            self._texts = _Texts(file)
            self.tables: List[str] = [name for name, group in file.items()
                                      if isinstance(group, h5py.Group) and name not in ("strings", "string_bytes")]
            for name in self.tables:
                if any(_attribute(column, "unit") == "enum" and not _attribute(column, "codes")
                       for column in file[name].values()):
                    raise ValueError("%s was written before files named their own codes; try: record or import the run again,"
                                     " or read it as docs/trace-format.md says" % path)

    def __getitem__(self, table: str) -> Any:
        """The table as a DataFrame. A table without rows may not be in a rank's file: then the frame has no columns."""
        with h5py.File(self.path, "r") as file:
            if table not in file:
                return pd.DataFrame()
            group, clock = file[table], self._clock
            if clock is None and "rank" in group and table != "clock":  # Of the timeline: some columns are a rank's own.
                clock = _ClockOfRows(file, group["rank"][:])
            return _frame(group, self._texts, clock)

    def __contains__(self, table: object) -> bool:
        return table in self.tables

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)


class Run:
    """A run directory's tables as pandas frames, with names in place of numbers.

    run["steps"]                a table of the merged timeline
    run.rank(3)["ranges"]       a table of rank 3's own events
    run.events("kernels")       that table of all ranks, with a column `rank` in front
    run.tables, run.ranks       what there is

    Texts and codes are categories, moments int64 nanoseconds of the cluster's one clock (nullable where one is missing),
    durations nanoseconds. Columns are those of docs/trace-format.md. A run that was not merged is merged first, by the
    program `lockstep`.
    """

    def __init__(self, run: Union[str, "os.PathLike[str]"]) -> None:
        self.path = os.fspath(run)
        if os.path.isfile(self.path):
            self.path = os.path.dirname(self.path) or "."
        timeline = os.path.join(self.path, "timeline.h5")
        if not os.path.exists(timeline):
            self._merge()
        self._timeline = _Tables(timeline)
        self.tables = self._timeline.tables
        # Rank -> its files: the main process's first, then those of further processes.
        self._files: Dict[int, List[str]] = {}
        for path in sorted(glob.glob(os.path.join(glob.escape(self.path), "ranks", "rank-*.h5"))):
            match = _RANK_FILE.search(path)
            if match:
                self._files.setdefault(int(match.group(1)), []).append(path)
        for paths in self._files.values():
            paths.sort(key=lambda path: int(_RANK_FILE.search(path).group(2) or 0))  # type: ignore[union-attr]
        self.ranks = sorted(self._files)

    def _merge(self) -> None:
        from . import _program

        program = _program.find()
        if not os.path.isdir(os.path.join(self.path, "ranks")):
            raise FileNotFoundError("%s is no run of Lockstep: it has neither timeline.h5 nor ranks/" % self.path)
        if not program:
            raise FileNotFoundError("%s is not merged; try: lockstep merge %s" % (self.path, self.path))
        done = subprocess.run([program, "merge", "--", self.path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        # What is missing in a run makes another exit code, and a timeline all the same.
        if not os.path.exists(os.path.join(self.path, "timeline.h5")):
            raise RuntimeError(done.stderr.decode("utf-8", "replace").strip() or "lockstep merge failed")

    def __getitem__(self, table: str) -> Any:
        """A table of the timeline as a DataFrame; KeyError if it has none of this name."""
        if table not in self._timeline:
            raise KeyError("timeline.h5 has no table %r: it has %s; events are in run.rank(N) and run.events(TABLE)"
                           % (table, ", ".join(self.tables)))
        return self._timeline[table]

    def rank(self, rank: int, process: int = 0) -> _Tables:
        """The tables of one rank's file; `process`: of its further processes, in their order."""
        paths = self._files.get(rank)
        if paths is None or process >= len(paths):
            raise KeyError("no file of rank %d, process %d: ranks are %s" % (rank, process, self.ranks))
        with h5py.File(self._timeline.path, "r") as timeline:
            clock = _Clock(timeline, rank)
        return _Tables(paths[process], clock)

    def events(self, table: str) -> Any:
        """That table of all ranks and processes, in their order, with columns `rank` and `process` in front."""
        frames = []
        for rank in self.ranks:
            for process in range(len(self._files[rank])):
                frame = self.rank(rank, process)[table]
                frame.insert(0, "rank", np.full(len(frame), rank))
                frame.insert(1, "process", np.full(len(frame), process))
                frames.append(frame)
        filled = [frame for frame in frames if len(frame)]
        if not filled:
            return frames[0] if frames else pd.DataFrame()
        # Categories differ between files: the whole has all of them.
        for name in filled[0].columns:
            if all(isinstance(frame[name].dtype, pd.CategoricalDtype) for frame in filled if name in frame):
                parts = [frame[name] for frame in filled if name in frame]
                names = list(dict.fromkeys(value for part in parts for value in part.cat.categories))
                for frame in filled:
                    if name in frame:
                        frame[name] = frame[name].cat.set_categories(names)
        return pd.concat(filled, ignore_index=True)

    def __repr__(self) -> str:
        return "lockstep.load(%r): %d ranks, tables %s" % (self.path, len(self.ranks), ", ".join(self.tables))
