"""Horovod's elastic training, at a number of ranks that does not change."""
from dtrain.torch.elastic import ElasticSampler, TorchState, run

__all__ = ["ElasticSampler", "TorchState", "run"]
