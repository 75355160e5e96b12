"""Horovod's names, on libdtrain: `horovod.torch` and what its users' scripts take from beside it.

The version is the one of Horovod's interface.
"""
from horovod.runner import run

__version__ = "0.28.1"
