"""app.py PLACE [fail]: says in PLACE that it is there, and waits for a file, so that a test decides how long the job lasts."""
import os
import sys
import time

open(sys.argv[1] + "/up-" + os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")), "w").close()
while not os.path.exists(sys.argv[1] + "/go"):
    time.sleep(0.01)
# One write: mpirun may mix the pieces of a line with those of other ranks, and print to a terminal makes pieces.
sys.stdout.write(f"result {sum(i * i for i in range(1000))}\n")
sys.exit(7 if len(sys.argv) > 2 else 0)
