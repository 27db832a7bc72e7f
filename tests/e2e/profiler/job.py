"""job.py FAKE_CUPTI OUT ROUNDS KERNELS QUEUED PAUSE_MS: a program that profiles itself with torch's own profiler.

Each round: QUEUED kernels are launched and still run when the profiler starts; KERNELS are launched under it and waited
for; the profile is written to OUT/ROUND.json; PAUSE_MS passes, and QUEUED more are launched and waited for.
"""
import ctypes
import json
import sys
import time

fake, out = ctypes.CDLL(sys.argv[1]), sys.argv[2]
rounds, kernels, queued, pause_ms = map(int, sys.argv[3:])

from torch._C._autograd import _disable_profiler, _enable_profiler, _prepare_profiler  # noqa: E402
from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig  # noqa: E402

fake.fake_gpu_launch.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_int64]
fake.fake_gpu_violations.restype = fake.fake_gpu_made.restype = ctypes.c_uint64
STREAM = 7
names = {}


def launch(count, name, duration_us):
    text = names.setdefault(name, name.encode())  # Must live as long as the process.
    for _ in range(count):
        fake.fake_gpu_launch(STREAM, text, duration_us * 1000)


activities = {ProfilerActivity.CPU, ProfilerActivity.CUDA}
fake.fake_gpu_init()
for i in range(rounds):
    launch(queued, "before", 1000)
    # Made anew: a profile takes its configuration.
    config = [ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, _ExperimentalConfig())
              for _ in range(2)]
    _prepare_profiler(config[0], activities)
    _enable_profiler(config[1], activities)
    launch(kernels, "inside", 50)
    fake.fake_gpu_device_synchronize()
    _disable_profiler().save(f"{out}/{i}.json")
    time.sleep(pause_ms / 1000)
    launch(queued, "after", 1000)
    fake.fake_gpu_device_synchronize()
print(json.dumps({"violations": fake.fake_gpu_violations(), "made": fake.fake_gpu_made(10)}))
