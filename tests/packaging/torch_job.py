"""What torch_test.py runs: torch_job.py compiled|schedule"""

import sys
import time

import torch

import lockstep


@lockstep.range("decorated")
def twice(x):
    return x * 2


def body(x):
    with lockstep.range("inside", "forward"):
        y = twice(x) + 1
    lockstep.step()
    lockstep.mark("moment")
    return y.sin()


def compiled():
    whole = torch.compile(body, backend="eager", fullgraph=True)
    for _ in range(3):
        result = whole(torch.ones(3))
    assert torch.equal(result, body(torch.ones(3)))
    print(dict(torch._dynamo.utils.counters["stats"]), dict(torch._dynamo.utils.counters["graph_break"]))


def schedule():
    """A tutorial's loop on two ranks, with the schedule and the activities of torch.profiler itself."""
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, schedule

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    done = []
    with lockstep.profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=3, warmup=2, active=5, repeat=2),
                          on_trace_ready=lambda p: done.append(p.step_num)) as p:
        for _ in range(25):
            optimizer.zero_grad()
            model(torch.randn(8, 64)).sum().backward()
            optimizer.step()
            p.step()
    assert done == [10, 20], done
    # Gloo's threads let go of their last work, for which they need the interpreter (tests/torch_abort.py).
    time.sleep(0.3)
    dist.destroy_process_group()


globals()[sys.argv[1]]()
