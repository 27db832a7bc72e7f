"""Rank files through h5py with all their tables and columns: a rank file leaves out tables that have no rows, and a
small one columns in which every row is unknown.

open_file(path, mode) is h5py.File, but that tables of the format which a rank file lacks are there and empty. Their
names and types are those of docs/trace-format.md, so that a misspelt name is still an error. Columns that were left out
are there with the value that the table's attribute says.
"""
import collections.abc
import functools
import pathlib
import re

import h5py
import numpy as np

FORMAT = pathlib.Path(__file__).resolve().parents[1] / "docs" / "trace-format.md"


@functools.lru_cache(maxsize=None)
def schema():
    """{table: {column: dtype}}, every table that the document lists."""
    tables, columns = {}, None
    for line in FORMAT.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"### `(\w+)`", line):
            columns = tables.setdefault(heading[1], {})
        elif line.startswith("#"):
            columns = None
        elif columns is not None and (row := re.match(r"\| `(\w+)` \| ([iu])(\d+) \|", line)):
            columns[row[1]] = np.dtype(f"<{row[2]}{int(row[3]) // 8}")
    return tables


@functools.lru_cache(maxsize=None)
def meanings():
    """{(table, column): what a rank file's column is}, as its attribute `description` says."""
    found, table = {}, None
    for line in FORMAT.read_text(encoding="utf-8").splitlines():
        if line.startswith("## Tables of timeline"):
            break
        if heading := re.match(r"### `(\w+)`", line):
            table = heading[1]
        elif row := re.match(r"\| `(\w+)` \| [iu]\d+ \| [^|]+ \| (.*) \|$", line):
            found[table, row[1]] = row[2]
    return found


class _Empty(dict):
    """A table without rows: {column: array}."""

    attrs = {}


class _Filled(np.ndarray):
    """A column that was left out; `attrs` as a dataset has them."""


class _Partly(collections.abc.Mapping):
    """A table that lacks some columns, these filled in: {column: dataset or array}."""

    def __init__(self, group):
        self.group, self.attrs = group, group.attrs
        lines = group.attrs["left_out"]
        lines = (lines.decode() if isinstance(lines, bytes) else lines).splitlines()
        self.left_out = {line.split(" ", 1)[0]: line for line in lines}

    def __getitem__(self, column):
        if column not in self.left_out:
            return self.group[column]
        _, kind, unit, value, *code = self.left_out[column].split(" ", 4)
        rows = len(self.group[next(iter(self.group))])
        filled = np.full(rows, int(value), np.dtype(f"<{kind[0]}{int(kind[1:]) // 8}")).view(_Filled)
        filled.attrs = {"unit": unit, "description": meanings()[self.group.name.strip("/"), column]}
        if code:
            filled.attrs["codes"] = " ".join([value, *code])
        return filled

    def __contains__(self, column):
        return column in self.left_out or column in self.group

    def __iter__(self):
        return iter([*self.group, *self.left_out])

    def __len__(self):
        return len(self.group) + len(self.left_out)


class _RankFile(h5py.File):
    def _absent(self, name):
        table, _, column = str(name).strip("/").partition("/")
        columns = schema().get(table)
        if column and super().__contains__(table):
            return _Partly(super().__getitem__(table))[column]
        if columns is None or (column and column not in columns) or super().__contains__(table):
            raise KeyError(name)
        if column:
            return np.zeros(0, columns[column])
        return _Empty({c: np.zeros(0, dtype) for c, dtype in columns.items()})

    def __getitem__(self, name):
        if not super().__contains__(name):
            return self._absent(name)
        found = super().__getitem__(name)
        return _Partly(found) if isinstance(found, h5py.Group) and "left_out" in found.attrs else found

    def __contains__(self, name):
        try:
            self[name]
        except KeyError:
            return False
        return True

    def __iter__(self):
        present = list(super().__iter__())
        return iter(present + [table for table in schema() if table not in present])

    def keys(self):
        return list(self)

    def values(self):
        return [self[name] for name in self]

    def items(self):
        return [(name, self[name]) for name in self]


def open_file(path, mode="r"):
    file = h5py.File(path, mode)
    if str(file.attrs.get("format", "")).startswith("lockstep.rank/"):
        file.close()
        return _RankFile(path, mode)
    return file
