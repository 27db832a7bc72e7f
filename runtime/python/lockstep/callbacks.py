"""Callbacks that mark the steps of a trainer, and record a schedule's.

    from lockstep.callbacks import TrainerCallback          # Hugging Face transformers
    Trainer(..., callbacks=[TrainerCallback(schedule=lockstep.schedule(wait=10, warmup=0, active=20, repeat=1))])

    from lockstep.callbacks import LightningCallback        # lightning or pytorch_lightning
    Trainer(..., callbacks=[LightningCallback()])

A step is one of the optimizer for the Hugging Face trainer and one batch for Lightning, from the end of the one before.
Arguments are those of lockstep.profile. The frameworks are imported when the name is asked for. Without schedule the
callback is not needed: Lockstep finds the optimizer's steps itself.
"""

import sys
from typing import Any

from ._profile import profile


def _trainer_callback() -> Any:
    from transformers import TrainerCallback as Base

    class TrainerCallback(Base):  # type: ignore[misc]
        """Hugging Face's Trainer: a step of lockstep.profile for each of the optimizer."""

        def __init__(self, **of_profile: Any) -> None:
            self.profile = profile(**of_profile)

        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            self.profile.start()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            self.profile.step()

        def on_train_end(self, *args: Any, **kwargs: Any) -> None:
            self.profile.stop()

    return TrainerCallback


def _lightning_callback() -> Any:
    # The one that the program uses: each knows only its own callbacks.
    if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
        from pytorch_lightning.callbacks import Callback as Base
    else:
        try:
            from lightning.pytorch.callbacks import Callback as Base
        except ImportError:
            from pytorch_lightning.callbacks import Callback as Base

    class LightningCallback(Base):  # type: ignore[misc]
        """Lightning's Trainer: a step of lockstep.profile for each batch."""

        def __init__(self, **of_profile: Any) -> None:
            super().__init__()
            self.profile = profile(**of_profile)

        def on_train_start(self, *args: Any, **kwargs: Any) -> None:
            self.profile.start()

        def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
            self.profile.step()

        def on_train_end(self, *args: Any, **kwargs: Any) -> None:
            self.profile.stop()

        def on_exception(self, *args: Any, **kwargs: Any) -> None:
            self.profile.stop()

    return LightningCallback


def __getattr__(name: str) -> Any:
    make = {"TrainerCallback": _trainer_callback, "LightningCallback": _lightning_callback}.get(name)
    if make is None:
        raise AttributeError("module 'lockstep.callbacks' has no attribute %r" % name)
    made = globals()[name] = make()
    return made
