#!/usr/bin/env python3
"""Fully sharded training with PyTorch's FSDP2 (fully_shard), one GPU per rank. Needs PyTorch 2.6 or later.

    mpirun -np 8 lockstep run -- python3 examples/torch/fsdp_train.py

The script knows nothing of Lockstep and runs the same without it.
"""

import argparse
import sys
import time

import torch
import torch.distributed as dist

from rendezvous import rank_and_size


class Block(torch.nn.Module):
    """A transformer layer: attention and a feed-forward part, each with its residual."""

    def __init__(self, width, heads):
        super().__init__()
        self.before_attention = torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, heads, batch_first=True)
        self.feed_forward = torch.nn.Sequential(torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width),
                                                torch.nn.GELU(), torch.nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.before_attention(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed_forward(x)


class Model(torch.nn.Module):
    def __init__(self, vocabulary, width, heads, layers):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=512, help="tokens per sequence")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    if not torch.cuda.is_available():
        sys.exit("fsdp_train: this example needs an NVIDIA GPU per rank and a CUDA build of PyTorch; "
                 "examples/torch/ddp_train.py runs without")
    try:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except ImportError:
        sys.exit(f"fsdp_train: PyTorch {torch.__version__} has no torch.distributed.fsdp.fully_shard; 2.6 and later have")

    rank, size, local_rank = rank_and_size()
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=size, device_id=device)

    torch.manual_seed(options.seed)
    model = Model(options.vocabulary, options.width, options.heads, options.layers).to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    random = torch.Generator(device).manual_seed(options.seed + 1_000_000 * (rank + 1))

    begin = time.perf_counter()
    for step in range(options.steps):
        tokens = torch.randint(options.vocabulary, (options.batch, options.length + 1), generator=random, device=device)
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            value = loss.item()
            if rank == 0:
                print(f"step {step:4d}  loss {value:.4f}", flush=True)
    torch.cuda.synchronize()
    if rank == 0:
        print(f"{options.steps} steps in {time.perf_counter() - begin:.2f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
