"""Rank files on a machine without h5py and numpy: the tables that `lockstep export --format csv` writes."""

import collections
import csv
import pathlib
import shutil
import subprocess


class RankFile:
    """One rank of a run. Texts stand for their numbers; whole numbers are int, what is unknown is None. Moments are
    cluster time, lengths of time are the rank's own."""

    def __init__(self, directory, rank):
        self.directory, self.rank = pathlib.Path(directory), rank
        self.tables = {}
        self.meta = dict(zip(self.column("meta", "key"), self.column("meta", "value")))

    def table(self, name):
        """{column: [value]}"""
        if name not in self.tables:
            with open(self.directory / f"{name}.csv", newline="", encoding="utf-8", errors="surrogateescape") as file:
                rows = csv.reader(file)
                head = next(rows)
                kept = [row for row in rows if row[0] == self.rank]
            self.tables[name] = {column: [row[i] for row in kept] for i, column in enumerate(head)}
        return self.tables[name]

    def column(self, table, name):
        return self.table(table)[name]

    def numbers(self, table, name):
        return [int(value) if value else None for value in self.column(table, name)]

    def rows(self, table):
        return len(self.column(table, "file_rank"))

    @property
    def losses(self):
        found = collections.Counter()
        for name, count in zip(self.column("losses", "name"), self.numbers("losses", "count")):
            found[name] += count or 0
        return dict(found)


def read(lockstep, run, environment):
    """[RankFile] of a run directory, and what the export said. A run that ended badly is recovered on the way."""
    directory = pathlib.Path(run) / "csv"
    shutil.rmtree(directory, ignore_errors=True)
    done = subprocess.run([lockstep, "export", str(run), "--format", "csv", "-o", str(directory), "--quiet"],
                          capture_output=True, text=True, errors="replace", env=environment, timeout=120)
    if not (directory / "meta.csv").exists():
        return [], done.stderr.strip()
    with open(directory / "meta.csv", newline="", encoding="utf-8", errors="surrogateescape") as file:
        ranks = sorted({row["file_rank"] for row in csv.DictReader(file)}, key=int)
    return [RankFile(directory, rank) for rank in ranks], done.stderr.strip()
