#!/usr/bin/env python3
"""What the built programs and libraries ask the dynamic linker for (DT_NEEDED), and what runs when they are loaded.

usage: libraries.py BUILD_DIR

The probe is loaded into foreign processes: it may bring nothing with it, and none of its variables is initialised by
code, which would touch their pages in every process that starts (160 KiB of zeros: 35 us). The command line tool must
run where there is no MPI and no GPU.
"""

import pathlib
import re
import subprocess
import sys

LIBC = r"lib(c|m|dl|rt|pthread)\.so\.\d+|ld-linux.*\.so\.\d+"
ONLY = {  # file -> all it may need
    "liblockstep.so": LIBC,
    "liblockstep-cudart.so": LIBC + r"|liblockstep\.so",
    "liblockstep-mpi.so": LIBC + r"|liblockstep\.so",
    "liblockstep-mpi-ompi40.so": LIBC + r"|liblockstep\.so",
    "liblockstep-gpu.so": LIBC + r"|liblockstep\.so",
}
NEVER = {  # file -> what it may not need
    "lockstep": r"libmpi.*|libopen-(rte|pal).*|libhdf5_openmpi.*|libcupti.*|libcuda.*|libcudart.*|libnccl.*|liblockstep.*|libdw.*|libelf.*",
    "lockstep-clock": r"libhdf5.*|libcupti.*|libcuda.*|libnccl.*",
}


def needed(file):
    text = subprocess.run(["readelf", "--dynamic", "--wide", str(file)], check=True, capture_output=True, text=True)
    return re.findall(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", text.stdout)


def initialised_by_code(file):
    """Sources of ours with variables that are; libstdc++'s own emergency pool is one that cannot be helped."""
    text = subprocess.run(["nm", str(file)], check=True, capture_output=True, text=True).stdout
    return [name for name in re.findall(r" _GLOBAL__sub_I_(\S+)", text) if name != "eh_alloc.cc"]


def main(build):
    bad = 0
    others = {file.name: ONLY["liblockstep-mpi.so"] for file in pathlib.Path(build).glob("liblockstep-mpi-*.so")}
    ONLY.update(others)  # Wrappers for an MPI whose mpi.h is not everywhere.
    for name in [*ONLY, *NEVER]:
        file = pathlib.Path(build) / name
        if not file.exists():
            print(f"{name}: not built")
            bad += 1
            continue
        names = needed(file)
        wrong = [n for n in names if (name in ONLY and not re.fullmatch(ONLY[name], n)) or
                 (name in NEVER and re.fullmatch(NEVER[name], n))]
        print(f"{name}: {' '.join(names)}")
        for library in wrong:
            print(f"  must not need {library}")
        bad += len(wrong)
        if name in ONLY:
            for source in initialised_by_code(file):
                print(f"  runs code before main for variables of {source}: make them constinit")
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
