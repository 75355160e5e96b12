"""Prints the folder that `import horovod` is found in."""
from dtrain.compat import path

print(path)
