"""What is to be known of a GPU machine before anything is measured on it: quick facts first."""

import os
import pathlib
import shutil
import subprocess
import sys
import time

import machine

SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")  # Of names in the environment.


def shell(text, seconds):
    """What a command says. What is not there says so itself."""
    try:
        done = subprocess.run(["bash", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=seconds)
    except subprocess.TimeoutExpired as late:
        return f"no answer for {seconds:.0f} s; until then: {late.stdout or ''}"
    except OSError as error:
        return str(error)
    return done.stdout.strip() + (f"\n[exit {done.returncode}]" if done.returncode else "")


def environment():
    kept = ("CUDA", "NCCL", "NVIDIA", "LD_", "LOCKSTEP", "TORCH", "PYTORCH", "OMPI", "PATH", "OUT")
    return "\n".join(f"{name}={value}" for name, value in sorted(os.environ.items())
                     if name.startswith(kept) and not any(word in name for word in SECRET))


def torch_of(python):
    return f"""{python} - <<'END'
import importlib, importlib.metadata, os, sys
print(sys.version)
for name in ("numpy", "h5py", "torch", "mpi4py", "triton", "jax", "jaxlib"):
    try:
        print(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        print(name, "is not here")
print(*sorted(d.metadata["Name"] + " " + d.version for d in importlib.metadata.distributions()
              if (d.metadata["Name"] or "").startswith("nvidia")), sep="\\n")
try:
    import torch
except Exception as error:
    sys.exit("torch: " + repr(error))
print("torch", torch.__version__, "CUDA", torch.version.cuda, "in", os.path.dirname(torch.__file__))
print("cuda.is_available", torch.cuda.is_available())
try:
    print("NCCL", torch.cuda.nccl.version())
except Exception as error:
    print("NCCL:", error)
print(*sorted({{line.split()[-1] for line in open("/proc/self/maps")
                if any(word in line for word in ("libcupti", "libnccl", "libcudart", "libcuda.so"))}}), sep="\\n")
try:
    from torch._dynamo.eval_frame import skip_code
    print("torch._dynamo.eval_frame.skip_code is there")
except Exception as error:
    print("skip_code:", repr(error))
END"""


def linked_of(python):
    return f"""T=$({python} -c 'import importlib.util; print(importlib.util.find_spec("torch").submodule_search_locations[0])') || exit
for L in libtorch_cpu libtorch_cuda; do echo $L; readelf -d $T/lib/$L.so | grep -E 'NEEDED.*(cupti|nccl|cudart)|RUNPATH|RPATH'; done
echo "undefined cupti symbols of libtorch_cpu: $(readelf -Ws --dyn-syms $T/lib/libtorch_cpu.so | grep -c ' UND cupti')"
readelf -Ws --dyn-syms $T/lib/libtorch_cpu.so | grep ' UND cupti' | head -4"""


# (name, function of the seconds left), the most telling first. These take milliseconds, with a GPU and without.
QUICK = [
    ("rights", lambda left: shell("cat /proc/driver/nvidia/version; grep -i prof /proc/driver/nvidia/params; "
                                  "grep -E 'Cap|Seccomp|NoNewPrivs' /proc/self/status; id; ls -l /dev/nvidia*", left)),
    ("clock", lambda left: shell("cd /sys/devices/system/clocksource/clocksource0 && grep . *_clocksource; "
                                 "grep -m1 'model name' /proc/cpuinfo; grep -m1 flags /proc/cpuinfo | "
                                 "grep -o '[a-z]*_tsc'; nproc; uptime", left)),
    ("system", lambda left: shell("uname -a; head -2 /etc/os-release; ldd --version | head -1; free -m; "
                                  "df -h /dev/shm /tmp .; ulimit -l -n -v; "
                                  "cat /proc/sys/kernel/perf_event_paranoid", left)),
    ("environment", lambda left: environment()),
    ("tools", lambda left: " ".join(f"{tool}:{shutil.which(tool)}" for tool in (
        "nvcc", "g++", "cmake", "ninja", "make", "mpirun", "nsys", "ncu", "readelf", "patchelf", "gdb", "strace"))),
    ("interpreter", lambda left: f"{sys.executable} {sys.version}"),
]


def slow(build, python):
    """As QUICK, for a machine that has a GPU."""
    build = pathlib.Path(build)
    programs = [str(path) for path in (build / "lockstep", build / "ddp_nccl", build / "liblockstep-gpu.so") if path.exists()]
    return [
        ("nvidia-smi", lambda left: shell("nvidia-smi && nvidia-smi -q -d CLOCK,POWER,PERFORMANCE,COMPUTE", left)),
        ("nvcc", lambda left: shell("export PATH=$PATH:/usr/local/cuda/bin; which nvcc && nvcc --version | tail -2; "
                                    "ls -d /usr/local/cuda*", left)),
        ("folder", lambda left: shell(f"for p in {' '.join(programs)}; do echo $p; "
                                      "ldd $p | grep -E 'not found|not a dynamic' || echo all libraries found; "
                                      "done", left)),
        ("doctor", lambda left: shell(f"cd ${{TMPDIR:-/tmp}} && {build}/lockstep doctor", left)),
        ("python", lambda left: shell(torch_of(python), left)),
        ("libraries", lambda left: shell("find / -xdev \\( -name 'libcupti.so*' -o -name 'libnccl*.so*' -o -name "
                                         "'libcuda.so*' -o -name 'libnvidia-ml.so*' -o -name libcudart.so\\* \\) "
                                         "-print 2>/dev/null", min(left, 10))),
        ("torch links", lambda left: shell(linked_of(python), left)),
    ]


def learn(asked, seconds, lines):
    """Asks in turn and writes down each answer when it is there; none is waited for beyond `seconds` in all."""
    end = time.monotonic() + seconds
    for name, ask in asked:
        began = time.monotonic()
        try:
            found = ask(end - began) if end - began > 0.5 else "not asked: those before took all the time"
        except Exception as error:  # Of this fact only.
            found = f"{type(error).__name__}: {error}"
        lines.write(type="fact", name=name, text=found, seconds=round(time.monotonic() - began, 1))
        lines.say(f"--- {name}\n{found}")
