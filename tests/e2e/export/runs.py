"""Synthetic runs that the export is tested on."""

import pathlib
import subprocess

import jobs

MAKE_RUN = jobs.BUILD / "make_run"

# Clocks that differ, waits, messages, operations in flight side by side.
MPI = """
ranks 4
nodes 2
steps 6
warmup 1
seed 3
clocks separate
clock rank=2 offset=3s drift=20ppm
network alpha=20us bandwidth=2GB/s
jitter 2%
late rank=2 by=2ms
comm half block=2
step
  input 300us
  push load
  compute 200us name=decode
  pop
  forward 3ms
  backward 6ms buckets=1MiB,1MiB,1MiB
  ring 64KiB
  waitall
  allreduce 8KiB comm=half
  barrier
  optimizer 500us
end
"""
GPU = """
ranks 4
nodes 2
steps 5
warmup 1
gpu
dispatch 5us
seed 9
clock node=1 offset=3s drift=11ppm
network alpha=20us bandwidth=10GB/s
jitter 2%
comm half block=2
late rank=3 by=2ms steps=2-3
sensors period=1ms clock=1980
step
  input 500us
  copy h2d 8MiB
  kernel 8us count=20 name=small
  nccl allgather 4MiB comm=half stream=21 as=embeddings
  join embeddings
  ddp buckets=4MiB,4MiB forward=2ms backward=4ms layers=8
  copy d2h 4kB sync
  nccl reducescatter 16MiB comm=half stream=21
  join
  sync device
  kernel 400us name=adam
end
"""


def make(text, directory, *options):
    """RUN of a description, below `directory`."""
    directory = pathlib.Path(directory)
    (directory / "spec.run").write_text(text)
    done = subprocess.run([MAKE_RUN, directory / "spec.run", directory / "run", *options], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    return directory / "run"


def lockstep(*words, expect=0, **more):
    done = jobs.run([jobs.LOCKSTEP, *words], cwd="/", **more)
    assert done.returncode in (expect if isinstance(expect, tuple) else (expect,)), (done.returncode, done.stdout.decode(), done.stderr.decode())
    return done.stdout.decode()


def rows(file, table):
    """Rows of a table of an HDF5 file as dicts."""
    columns = {name: data[:] for name, data in file[table].items()}
    return [dict(zip(columns, values)) for values in zip(*columns.values())]
