"""Lockstep's hooks into PyTorch and what they share with the module `lockstep`. Not for users."""
