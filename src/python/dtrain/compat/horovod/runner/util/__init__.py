"""Helpers of Horovod's runner that its tests use."""
