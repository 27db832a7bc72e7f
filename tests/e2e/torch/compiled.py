"""What torch.compile makes of training scripts. Prints losses to the bit, what became a graph and how often the
compiler gave up or began anew; the same lines with and without Lockstep. One process."""

import gc
import os
import sys
import tempfile

import torch
import torch._dynamo
import torch.distributed as dist
from torch.distributed import _functional_collectives as collectives

counters = torch._dynamo.utils.counters

gc.disable()  # Guards look at what objects are: these are freed between the cases, not whenever.


def case(name, prepare):
    torch._dynamo.reset()
    gc.collect()
    counters.clear()
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        step = prepare(net, model, optimizer)
        end = [float(step(torch.ones(2, 16) * i).detach()).hex() for i in range(5)]
    except Exception as error:  # Not everything can be one graph; then it cannot be one with Lockstep either.
        end = type(error).__name__, str(error).split("\n")[0]
    print(name, end)
    for kind in ("graph_break", "frames", "stats", "recompile_limit"):
        print("   ", kind, sorted((key.split("\n")[0], count) for key, count in counters.get(kind, {}).items()))


def training(run, optimizer, optimize=None):
    def step(x):
        optimizer.zero_grad()
        loss = run(x).sum()
        loss.backward()
        (optimize or optimizer.step)()
        return loss

    return step


def labelled(net):
    def forward(x):
        with torch.autograd.profiler.record_function("mine"):
            return net(x) * 2

    return forward


def reduced(x):
    y = x * 2
    dist.all_reduce(y)
    return y


def functional(x):
    y = collectives.all_reduce(x * 2, "sum", dist.group.WORLD)
    return collectives.wait_tensor(y) + collectives.all_gather_tensor(x, 0, dist.group.WORLD)


def cases(full, backend):
    made = lambda function: torch.compile(function, backend=backend, fullgraph=full)  # noqa: E731
    case("model", lambda net, model, optimizer: training(made(model), optimizer))
    case("inside", lambda net, model, optimizer: training(
        torch.nn.parallel.DistributedDataParallel(made(net)), optimizer))
    case("optimizer", lambda net, model, optimizer: training(model, optimizer, made(optimizer.step)))
    case("around", lambda net, model, optimizer: training(model, optimizer, made(lambda: optimizer.step())))
    case("labelled", lambda net, model, optimizer: training(made(labelled(net)), optimizer))
    case("step", lambda net, model, optimizer: made(training(model, optimizer)))
    case("reduced", lambda net, model, optimizer: lambda x: made(reduced)(x).sum())
    case("functional", lambda net, model, optimizer: lambda x: made(functional)(x).sum())


torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as directory:
    dist.init_process_group("gloo", init_method="file://" + directory + "/meeting", rank=0, world_size=1)
    for backend in sys.argv[1:]:
        for full in (False, True):
            print(backend, "fullgraph" if full else "")
            cases(full, backend)
    dist.destroy_process_group()
