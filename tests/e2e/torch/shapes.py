"""A training with products and convolutions; with "truth" under torch.profiler, whose flops it prints.

Each line of the truth is [operator, shapes of the tensors among its inputs, floating-point operations of one call].
"""
import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)
        self.line = torch.nn.Conv1d(6, 3, 5, dilation=2)
        self.up = torch.nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.linear = torch.nn.Linear(16, 8)
        self.plain = torch.nn.Linear(8, 8, bias=False)

    def forward(self, x):
        y = self.conv(x)
        y = (self.up(y)[:, :, :8, :8] * 2.0).mean() + self.line(y.flatten(2)).mean()
        z = self.plain(self.linear(x.flatten(2)[:, :, :16]))
        z = torch.bmm(z, z.transpose(1, 2)) + torch.baddbmm(torch.ones(1), z, z.transpose(1, 2))
        return y + z.mean() + self.linear(x.flatten(1)[:, :16]).mean()


def train(steps):
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(3, 4, 16, 16)).backward()
        optimizer.step()
    return float(sum(p.sum() for p in net.parameters()))


torch.set_num_threads(1)
if sys.argv[1] == "train":
    print(train(4))
else:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True) as p:
        train(1)
    for event in p.key_averages(group_by_input_shape=True):
        if event.flops:
            print(json.dumps([event.key, [shape for shape in event.input_shapes if shape], event.flops // event.count]))
