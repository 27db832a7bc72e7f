"""Everything a training script may do to the parts that the hooks wrap. Prints what came of it;
the same lines with and without Lockstep. One process, no MPI.

usage: variants.py START_METHOD      of DataLoader's workers: fork or spawn
"""

import copy
import hashlib
import io
import inspect
import pickle
import sys
import tempfile
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        with record_function("load one"):  # In a worker: of no interest to anybody.
            return torch.full((4,), float(i)), torch.full((2,), float(i % 3))


class Doubling(torch.optim.SGD):
    """Overrides step and calls its parent's."""

    def step(self, closure=None):
        result = super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.mul_(1.0001)
        return "doubled" if result is None else result


class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def forward(self, x):
        with record_function("own forward"):
            return self.inner(x)


class Logged(DistributedDataParallel):
    def forward(self, *inputs, **kwargs):
        return super().forward(*inputs, **kwargs) * 1.0


def own_hook(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    state.append((bucket.index(), bucket.buffer().numel()))
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def digest(model):
    sha = hashlib.sha256()
    for name, p in model.state_dict().items():
        sha.update(name.encode() + p.numpy().tobytes())
    return sha.hexdigest()[:16]


def plain(method):
    """DataLoader with workers, scheduler, accumulation."""
    torch.manual_seed(1)
    model = Own()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    data = DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context=method)
    for i, (x, y) in enumerate(data):
        torch.nn.functional.mse_loss(model(x), y).backward()
        if i % 2 == 1:  # Two batches to a step.
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
    print("plain", digest(model), scheduler.get_last_lr(), len(list(data)))
    return model, optimizer


def copies(model, optimizer):
    for name, make in (("deepcopy", copy.deepcopy), ("pickle", lambda o: pickle.loads(pickle.dumps(o)))):
        other = make(optimizer)
        print(name, type(other).__name__, sorted(vars(other)) == sorted(vars(optimizer)), other.step() is None)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    print("torch.save", digest(torch.load(buffer, weights_only=False)))
    print("signature", inspect.signature(torch.optim.Adam.step), inspect.signature(DistributedDataParallel.forward),
          inspect.signature(torch.autograd.backward), torch.optim.Adam.step.hooked, torch.optim.Adam.step.__name__,
          torch.optim.Adam.step.__qualname__, torch.optim.SGD.step.__doc__)


def closures():
    torch.manual_seed(2)
    model = Own()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x, y = torch.randn(8, 4), torch.randn(8, 2)

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    print("lbfgs", float(optimizer.step(closure)), digest(model))
    doubling = Doubling(model.parameters(), lr=0.1)
    print("override", doubling.step(), digest(model))
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    loss = scaler.scale(closure())
    print("scaler", float(loss), scaler.step(doubling), scaler.update(), digest(model))


def scripted():
    @torch.jit.script
    def function(x):
        with torch.autograd.profiler.record_function("scripted"):
            return x * 2 + 1

    print("script", function(torch.ones(3)).tolist(), torch.jit.trace(Own().inner, torch.ones(1, 4))(torch.ones(1, 4)).shape)

    @record_function("decorated")
    def decorated(n):
        return n if n == 0 else decorated(n - 1)

    print("decorator", decorated(3), decorated.__name__)

    def generator():
        with record_function("in a generator"):
            yield 1
            yield 2

    a, b = generator(), generator()
    print("generators", next(a), next(b), next(a), next(b), list(a), list(b))


def errors(optimizer):
    class Broken(torch.nn.Module):
        def forward(self, x):
            raise ValueError("broken on purpose")

    def refuses():
        raise KeyError("closure")

    for name, call in (("forward", lambda: Broken()(1)),
                       ("backward", lambda: torch.ones(2).backward()),
                       ("step", lambda: optimizer.step(refuses)),
                       ("label", lambda: with_label())):
        try:
            call()
        except Exception as error:
            print("error", name, type(error).__name__, str(error)[:40])


def with_label():
    with record_function("raises"):
        raise OverflowError("inside a label")


def distributed():
    with tempfile.TemporaryDirectory() as directory:
        dist.init_process_group("gloo", init_method="file://" + directory + "/meeting", rank=0, world_size=1)
        trained()
        dist.destroy_process_group()


def trained():
    torch.manual_seed(3)
    model, seen = Logged(Own()), []
    model.register_comm_hook(seen, own_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4) * i).sum().backward()
        optimizer.step()
    with model.no_sync():
        model(torch.ones(2, 4)).sum().backward()
    total = torch.ones(3)
    dist.all_reduce(total)
    parts = [torch.zeros(3)]
    dist.all_gather(parts, total)
    dist.barrier()
    print("ddp", digest(model.module), seen, total.tolist(), parts[0].tolist(),
          dist.all_reduce(total, async_op=True).wait(), dist.get_backend())
    try:
        model.register_comm_hook(None, "not callable")
    except TypeError as error:
        print("ddp hook", error)


def in_thread():
    model, optimizer = plain("fork")
    print("thread", optimizer.step())


def main():
    model, optimizer = plain(sys.argv[1])
    copies(model, optimizer)
    closures()
    scripted()
    errors(optimizer)
    distributed()
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
