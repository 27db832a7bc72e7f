"""Jobs over gloo for gloo.py: gloo_job.py KIND MEETING [ARGUMENT]"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])


def kinds():
    """One of each, whose arguments gloo.py knows."""
    tensor, several = torch.ones(100), [torch.empty(100) for _ in range(SIZE)]
    dist.all_reduce(tensor)
    dist.broadcast(tensor.double(), 1)
    dist.reduce(tensor, 1)
    dist.all_gather(several, tensor)
    dist.gather(tensor, several if RANK == 1 else None, 1)
    dist.scatter(tensor, several if RANK == 1 else None, 1)
    dist.all_to_all_single(torch.empty(100), tensor)
    dist.barrier()
    work = dist.all_reduce(torch.ones(7, dtype=torch.int64), async_op=True)
    work.wait()
    if RANK == 0:
        dist.send(tensor, 1, tag=3)
        dist.isend(tensor, 1, tag=4).wait()
    if RANK == 1:
        dist.recv(tensor, 0, tag=3)
        dist.irecv(tensor, 0, tag=4).wait()


def groups():
    """Halves of the job, each with collectives of its own, in other numbers on each."""
    halves = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    mine = halves[RANK % 2]
    for _ in range(3 + RANK % 2):
        dist.all_reduce(torch.ones(10), group=mine)
    dist.broadcast(torch.ones(5), 2 + RANK % 2, group=mine)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20), process_group=mine)
    for _ in range(3):
        model(torch.ones(4, 20)).sum().backward()
    dist.all_reduce(torch.ones(10))


def functional():
    """What nobody in Python waits for as a work, and no step is marked: rank 1 comes 30 ms after rank 0."""
    def of_future(tensor):
        return dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] / SIZE)

    if "--future" in sys.argv:
        def mean(tensor):
            return of_future(tensor).wait()
    elif "--futures" in sys.argv:
        def mean(tensor):
            return torch.futures.collect_all([of_future(tensor)]).wait()[0].value()
    else:
        from torch.distributed import _functional_collectives as functional

        def mean(tensor):
            return functional.all_reduce(tensor, "avg", dist.group.WORLD) + 0

    if "--compiled" in sys.argv:  # Then no function of Python's is called any more.
        mean = torch.compile(mean, backend="aot_eager", fullgraph=True)
    tensor = mean(torch.ones(50))
    for i in range(40):
        time.sleep(0.04 if RANK == 1 else 0.01)
        tensor = mean(tensor)
    assert tensor.sum().item() == 50, tensor


def apis():
    """What is built upon collectives and messages, each as often as gloo.py knows."""
    from torch.distributed.algorithms.join import Join

    if hasattr(dist, "device_mesh"):
        mesh = dist.device_mesh.init_device_mesh("cpu", (1, SIZE), mesh_dim_names=("outer", "inner"))
        inner = mesh.get_group("inner")
    else:  # 1.13
        inner = dist.new_group(range(SIZE))
    for _ in range(3):
        dist.all_reduce(torch.ones(11), group=inner)
    # Counts of its own: rank r gives 2 + r to each.
    dist.all_to_all_single(torch.empty(sum(2 + r for r in range(SIZE))), torch.ones((2 + RANK) * SIZE),
                           [2 + r for r in range(SIZE)], [2 + RANK] * SIZE)
    split = dist.split_group(split_ranks=[list(range(SIZE))]) if "--split" in sys.argv else dist.new_group(range(SIZE))
    for _ in range(4):
        dist.all_reduce(torch.ones(12), group=split)
    other = 1 - RANK
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(50), other, tag=5),
                                        dist.P2POp(dist.irecv, torch.empty(50), other, tag=5)]):
        work.wait()
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
    with Join([model]):  # Rank 0 has two batches, rank 1 three.
        for _ in range(2 + RANK):
            model(torch.ones(4, 20)).sum().backward()
    dist.barrier()
    dist.monitored_barrier()


def again():
    """The program's groups end and are made again, with the names of before."""
    for life in range(3):
        if life > 0:
            dist.destroy_process_group()
            dist.init_process_group("gloo", init_method="file://%s%d" % (sys.argv[2], life), rank=RANK, world_size=SIZE)
        pair = dist.new_group(range(SIZE))
        for _ in range(4):
            dist.all_reduce(torch.ones(10))
            dist.all_reduce(torch.ones(20 + life), group=pair)
        time.sleep(0.3)  # As at the end.


def batch_norm():
    """DDP with BatchNorm, whose buffers are broadcast in each forward; rank 1's data is late."""
    late_ms = float(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    layers = [torch.nn.Linear(256, 256), torch.nn.BatchNorm1d(256), torch.nn.ReLU()]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers, *layers[:1]), bucket_cap_mb=0.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    class Batches(torch.utils.data.Dataset):
        def __len__(self):
            return 24

        def __getitem__(self, index):
            if RANK == 1:
                time.sleep(late_ms / 1000)
            return torch.randn(64, 256)

    for batch in torch.utils.data.DataLoader(Batches(), batch_size=None):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    if RANK == 0:
        print(json.dumps([p.detach().sum().item() for p in model.parameters()]))


def pipeline():
    """Two stages that hand micro-batches to each other, without any collective; the second sleeps before each."""
    how, late_ms = sys.argv[3], float(sys.argv[4])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    stage = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(4)))
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.01)

    def hand_over(operation, tensor):
        if how == "calls":
            {dist.isend: dist.send, dist.irecv: dist.recv}[operation](tensor, 1 - RANK)
        elif how == "works":
            operation(tensor, 1 - RANK).wait()
        else:
            for work in dist.batch_isend_irecv([dist.P2POp(operation, tensor, 1 - RANK)]):
                work.wait()
        return tensor

    for step in range(24):
        optimizer.zero_grad()
        begun = []
        for _ in range(4):
            if RANK == 0:
                x = torch.randn(32, 128)
                y = stage(x)
                hand_over(dist.isend, y.detach())
            else:
                x = hand_over(dist.irecv, torch.empty(32, 128)).requires_grad_(True)
                time.sleep(late_ms / 1000)
                y = stage(x)
            begun.append((x, y))
        for x, y in begun:
            if RANK == 1:
                y.pow(2).mean().backward()
                hand_over(dist.isend, x.grad)
            else:
                y.backward(hand_over(dist.irecv, torch.empty(32, 128)))
        optimizer.step()
    print(RANK, json.dumps([p.detach().sum().item() for p in stage.parameters()]))


dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=RANK, world_size=SIZE)
globals()[sys.argv[1]]()
# Gloo's threads let go of their last work, for which they need the interpreter (tests/torch_abort.py).
time.sleep(0.3)
dist.destroy_process_group()
