"""COUNT steps of PAUSE seconds, by the public C API: steps.py COUNT PAUSE"""

import ctypes
import sys
import time

probe = ctypes.CDLL(None)
for _ in range(int(sys.argv[1])):
    probe.lockstep_probe_step()
    time.sleep(float(sys.argv[2]))
probe.lockstep_probe_step_end()
