"""job.py NAME ANYTHING STEPS PAUSE_S [SPOOL]: steps of ranges of that name, in a communicator of that name if there are several
ranks. With SPOOL it kills its agent and itself once the names are in that file."""
import os
import signal
import sys
import time

import lockstep

name, steps, pause_s = sys.argv[1], int(sys.argv[3]), float(sys.argv[4])
comm = None
if "OMPI_COMM_WORLD_SIZE" in os.environ:
    from mpi4py import MPI
    comm = MPI.COMM_WORLD.Dup()
    comm.Set_name(name[:40])
for step in range(steps):
    lockstep.step()
    with lockstep.range(name, "forward"):
        time.sleep(0.004 if comm is None or comm.rank else 0.008)
    with lockstep.range(name * 40, "input"):
        time.sleep(0.002)
    if comm is not None:
        comm.allreduce(1)
    time.sleep(pause_s)
if len(sys.argv) > 5:
    until = time.monotonic() + 120
    while (name * 2).encode() not in open(sys.argv[5], "rb").read() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
