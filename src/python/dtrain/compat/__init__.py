"""Stands in for other packages' names.

The folder of this module holds a package `horovod` that runs on libdtrain. It is found only where a
user asks for it:

    PYTHONPATH=$(python -m dtrain.compat) mpirun -np 4 python pytorch_mnist.py
"""
import os

#: The folder to put on PYTHONPATH.
path = os.path.dirname(os.path.abspath(__file__))
