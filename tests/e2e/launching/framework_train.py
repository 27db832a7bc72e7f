"""A tiny training on CPUs with a framework, which makes its processes, groups and loops itself.

usage: framework_train.py lightning|lightning-spawn|accelerate|trainer|deepspeed --nprocs N [--steps N] [--callback]

--callback: with that of lockstep.callbacks, which records 4 steps of the middle.
"""
import argparse
import sys
import tempfile
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("framework")
parser.add_argument("--nprocs", type=int, default=2)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--callback", action="store_true")
parser.add_argument("--local_rank", "--local-rank", type=int)  # deepspeed gives it.
WIDTH, BATCH = 32, 4


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1))


def data(a):
    return torch.randn(a.steps * BATCH * a.nprocs, WIDTH, generator=torch.Generator().manual_seed(1))


def callback(a, name):
    if not a.callback:
        return []
    import lockstep
    from lockstep import callbacks

    return [getattr(callbacks, name)(schedule=lockstep.schedule(wait=4, warmup=0, active=4, repeat=1))]


if sys.argv[1:2] and sys.argv[1].startswith("lightning"):  # At the top: spawned processes look for the class here.
    import lightning.pytorch as pl

    class Lightning(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = model()

        def training_step(self, batch, _index):
            return self.layers(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)


def lightning(a, strategy="ddp"):
    trainer = pl.Trainer(accelerator="cpu", devices=a.nprocs, strategy=strategy, max_epochs=1, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                         callbacks=callback(a, "LightningCallback"))
    trainer.fit(Lightning(), torch.utils.data.DataLoader(data(a), batch_size=BATCH))


def accelerate(a):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    layers = model()
    layers, optimizer, loader = accelerator.prepare(layers, torch.optim.SGD(layers.parameters(), lr=0.01),
                                                    torch.utils.data.DataLoader(data(a), batch_size=BATCH))
    for batch in loader:
        optimizer.zero_grad()
        accelerator.backward(layers(batch).square().mean())
        optimizer.step()
    accelerator.end_training()


def trainer(a):
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = model()

        def forward(self, x):
            return {"loss": self.layers(x).square().mean()}

    with tempfile.TemporaryDirectory() as place:
        arguments = TrainingArguments(output_dir=place, per_device_train_batch_size=BATCH, num_train_epochs=1, use_cpu=True,
                                      ddp_backend="gloo", report_to=[], save_strategy="no", logging_strategy="no",
                                      disable_tqdm=True, remove_unused_columns=False)
        Trainer(model=Model(), args=arguments, train_dataset=[{"x": x} for x in data(a)],
                callbacks=callback(a, "TrainerCallback")).train()
    if torch.distributed.is_initialized():
        # Gloo's threads let go of their last work, for which they need the interpreter (tests/torch_abort.py).
        time.sleep(0.3)
        torch.distributed.destroy_process_group()


def deepspeed(a):
    import deepspeed

    layers = model()
    engine, _, loader, _ = deepspeed.initialize(
        model=layers, model_parameters=layers.parameters(), training_data=list(data(a)),
        config={"train_micro_batch_size_per_gpu": BATCH, "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
                "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True})
    for batch in loader:
        engine.backward(engine(batch).square().mean())
        engine.step()
    # Gloo's threads let go of their last work, for which they need the interpreter (tests/torch_abort.py).
    time.sleep(0.3)
    torch.distributed.destroy_process_group()


def main():
    a = parser.parse_args()
    torch.set_num_threads(1)
    if a.framework == "lightning-spawn":
        lightning(a, "ddp_spawn")
    else:
        {"lightning": lightning, "accelerate": accelerate, "trainer": trainer, "deepspeed": deepspeed}[a.framework](a)


if __name__ == "__main__":
    main()
