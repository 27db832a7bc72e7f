#!/usr/bin/env python3
"""Work per segment of a real run, as make_run's `resample` reads it.

  measure_work.py RUN_DIR ... > work.csv

  mpirun --bind-to core -np 2 lockstep run --after none -o RUN -- ddp_mpi --work real --steps 160 --layers 6
      --width 256 --batch 128 --bucket-cap-mb 0.5

Of each run directory that `lockstep run` left: for every rank and step the time that the training thread spends
outside MPI, cut where it posts or enters a collective. So waits are not in it, and neither are polls. Steps whose
number of collectives differs from most are left out, as are the first three; so are runs with one rank.

Rows: run, rank, step, nanoseconds of each segment. The last segment is what follows the last collective.
"""
import collections
import glob
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
import rank_tables  # noqa: E402

WARM_UP = 3


def covered(begins, ends, at):
    """Time before each of `at` that lies inside the intervals (sorted, disjoint)."""
    total = numpy.concatenate(([0], numpy.cumsum(ends - begins)))
    before = numpy.searchsorted(begins, at, side="right")
    inside = numpy.where(before > 0, numpy.minimum(at, ends[numpy.maximum(before - 1, 0)]) - begins[numpy.maximum(before - 1, 0)], 0)
    return total[numpy.maximum(before - 1, 0)] + numpy.where(before > 0, inside, 0)


def union(begins, ends):
    order = numpy.argsort(begins, kind="stable")
    begins, ends = begins[order], numpy.maximum.accumulate(ends[order])
    if len(begins) == 0:
        return begins, ends
    first = numpy.concatenate(([True], begins[1:] > ends[:-1]))
    starts = begins[first]
    last = numpy.concatenate((numpy.flatnonzero(first)[1:] - 1, [len(begins) - 1]))
    return starts, ends[last]


def segments(path):
    """{step: [ns of each segment]}"""
    with rank_tables.open_file(path, "r") as file:
        training = file["threads/thread"][:][file["threads/training"][:] != 0][0]
        mine = file["mpi_calls/thread"][:] == training
        begins = file["mpi_calls/begin_ns"][:][mine]
        ends = begins + file["mpi_calls/duration_ns"][:][mine]
        # What was coalesced from polls far apart has work in between: the polls themselves cost next to nothing.
        polls = file["mpi_calls/count"][:][mine]
        kept = (polls <= 1) | ((ends - begins) // numpy.maximum(polls, 1) <= 20_000)
        begins, ends = union(begins[kept], ends[kept])
        arrivals = numpy.sort(file["collectives/begin_ns"][:])
        steps = [(i, b, e) for i, b, e, c in zip(file["steps/index"][:], file["steps/begin_ns"][:],
                                                 file["steps/end_ns"][:], file["steps/complete"][:]) if c]
    result = {}
    for index, begin, end in steps[WARM_UP:]:
        cuts = numpy.concatenate(([begin], arrivals[(arrivals >= begin) & (arrivals < end)], [end]))
        inside = covered(begins, ends, cuts)
        result[int(index)] = [int(v) for v in numpy.diff(cuts) - numpy.diff(inside)]
    return result


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print("# run,rank,step,ns outside MPI of each segment between collectives; made by measure_work.py")
    width = None
    for run, directory in enumerate(sys.argv[1:]):
        ranks = [segments(path) for path in sorted(glob.glob(os.path.join(directory, "ranks", "rank-?????.h5")))]
        if len(ranks) < 2:
            sys.exit(f"{directory}: needs two ranks at least")
        lengths = collections.Counter(len(row) for rank in ranks for row in rank.values())
        width = width or lengths.most_common(1)[0][0]
        steps = [s for s in ranks[0] if all(len(rank.get(s, ())) == width for rank in ranks)]
        for rank, rows in enumerate(ranks):
            for step in steps:
                print(",".join(map(str, [run, rank, step] + rows[step])))


if __name__ == "__main__":
    main()
