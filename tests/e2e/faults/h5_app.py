"""A program with a libhdf5 of its own: writes and reads a file."""

import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as file:
    for i in range(20):
        file.create_dataset("set%d" % i, data=np.arange(10000) * i, chunks=(1000,), track_times=False, compression="gzip", shuffle=True)
with h5py.File(sys.argv[1], "r") as file:
    print(sum(int(file["set%d" % i][:].sum()) for i in range(20)))
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "libhdf5" in line}
print(len(libraries), "files of libhdf5")
