"""What a machine has of what the GPU checks need: driver, GPUs, PyTorch's libraries. Nothing here needs a package."""

import glob
import os
import pathlib
import subprocess
import sys

# In a process of its own: a driver that hangs or crashes takes nothing with it.
PROBE = """
import ctypes, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    print("no driver: " + str(error)); sys.exit()
code = cuda.cuInit(0)
if code:
    text = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(text))
    print("no GPU: cuInit says %d %s" % (code, (text.value or b"").decode())); sys.exit()
count, version = ctypes.c_int(), ctypes.c_int()
cuda.cuDeviceGetCount(ctypes.byref(count)); cuda.cuDriverGetVersion(ctypes.byref(version))
print("%d GPUs, driver for CUDA %d.%d" % (count.value, version.value // 1000, version.value % 1000 // 10))
for device in range(count.value):
    name = ctypes.create_string_buffer(128)
    cuda.cuDeviceGetName(name, 128, device)
    print(name.value.decode())
"""


def driver(seconds=60):
    """(number of GPUs, what was found or is lacking)"""
    try:
        # Isolated: what a user's site-packages start takes longer than asking.
        done = subprocess.run([sys.executable, "-IS", "-c", PROBE], capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return 0, f"no GPU: the driver has not answered for {seconds} s"
    lines = done.stdout.strip().splitlines()
    if not lines:
        return 0, f"no GPU: asking the driver ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    count = lines[0].split(" GPUs", 1)[0]
    return (int(count) if count.isdigit() else 0), "; ".join(lines)


def nvidia_packages(python):
    """Folders site-packages/nvidia of an interpreter: what pip installed beside PyTorch."""
    try:
        done = subprocess.run([python, "-c", "import nvidia; print(*nvidia.__path__, sep='\\n')"], capture_output=True,
                              text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in done.stdout.splitlines() if line]


def toolkit_libraries(name):
    parts = ("lib64", "lib", "extras/CUPTI/lib64", "targets/*/lib")
    return sorted(found for part in parts for found in glob.glob(f"/usr/local/cuda*/{part}/{name}"))


def find_library(name, python):
    """Where a library lies that the dynamic linker need not know: pip's packages, then toolkits. None: nowhere."""
    packaged = sorted(found for package in nvidia_packages(python) for found in glob.glob(f"{package}/*/lib/{name}"))
    return next(reversed(packaged or toolkit_libraries(name)), None)


def loads(name):
    """Whether the dynamic linker finds it as things are."""
    done = subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({name!r})"], capture_output=True)
    return done.returncode == 0


# Of an interpreter, without the seconds that importing it takes.
TORCH = """
import importlib.util, pathlib, runpy, sys
found = importlib.util.find_spec("torch")
if found is None:
    sys.exit("it has no PyTorch")
version = runpy.run_path(str(pathlib.Path(found.origin).with_name("version.py")))
if not version.get("cuda"):
    sys.exit("its PyTorch " + version["__version__"] + " is built without CUDA")
"""


def torch_lacks(python):
    """None, or why an interpreter has no PyTorch for GPUs."""
    try:
        done = subprocess.run([python, "-c", TORCH], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]


CUPTI = ("libcupti.so.13", "libcupti.so.12")


def cupti(python, environment):
    """Name or path of a libcupti for a program without PyTorch; None: there is none."""
    if environment.get("LOCKSTEP_CUPTI"):
        return environment["LOCKSTEP_CUPTI"]
    return next((found for name in CUPTI if (found := name if loads(name) else find_library(name, python))), None)


def native_environment(python, environment):
    """For programs without PyTorch: what they load of NVIDIA's, where only PyTorch's packages have it. Only NCCL's folder
    goes on the library path, since a libcupti there would be taken by PyTorch, too."""
    added = {}
    if not loads("libnccl.so.2") and (nccl := find_library("libnccl.so.2", python)):
        others = environment.get("LD_LIBRARY_PATH")
        added["LD_LIBRARY_PATH"] = os.pathsep.join([str(pathlib.Path(nccl).parent), *([others] if others else [])])
    # Where Lockstep itself looks it is not helped.
    if "LOCKSTEP_CUPTI" not in environment and not any(loads(name) or toolkit_libraries(name) for name in CUPTI):
        packaged = [found for name in CUPTI if (found := find_library(name, python))]
        if packaged:
            added["LOCKSTEP_CUPTI"] = packaged[0]
    return added
