"""Rank files through h5py with all their tables: a rank file leaves out those that have no rows.

open_file(path, mode) is h5py.File, but that tables of the format which a rank file lacks are there and empty. Their
names and types are those of docs/trace-format.md, so that a misspelt name is still an error.
"""
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


class _Empty(dict):
    """A table without rows: {column: array}."""

    attrs = {}


class _RankFile(h5py.File):
    def _absent(self, name):
        table, _, column = str(name).strip("/").partition("/")
        columns = schema().get(table)
        if columns is None or (column and column not in columns) or super().__contains__(table):
            raise KeyError(name)
        if column:
            return np.zeros(0, columns[column])
        return _Empty({c: np.zeros(0, dtype) for c, dtype in columns.items()})

    def __getitem__(self, name):
        if super().__contains__(name):
            return super().__getitem__(name)
        return self._absent(name)

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
