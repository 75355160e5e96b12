"""Horovod's exceptions."""
from dtrain.errors import Error


#: Raised when an operation fails, with what dtrain.Error carries.
HorovodInternalError = Error


class HostsUpdatedInterrupt(RuntimeError):
    """Raised by Horovod when hosts come or go. Here they do not."""

    def __init__(self, skip_sync: bool = False):
        super().__init__()
        self.skip_sync = skip_sync
