"""Activation at the end of `import torch`, through torch's entry point group `torch.backends`."""

from __future__ import annotations

import os

from stalloc import _install
from stalloc._core import _log, _process

_tried = False


def activate() -> None:
    """Does what STALLOC_MODE asks; an obstacle is printed, once, and the program goes on with plain torch.

    Raises:
        ValueError: a variable's value is not allowed, which nobody can have meant.
        RuntimeError: under STALLOC_STRICT=1, when the allocator could not be put in place.
    """
    global _tried
    if _tried or not _process.trains():
        return
    _tried = True  # the first import of stalloc comes here, then the entry point itself
    try:
        _install.activate()
    except ValueError as error:
        _log.error(str(error))
        raise
    except Exception as error:  # whatever it is: torch must stay importable
        if os.environ.get("STALLOC_STRICT") == "1":
            raise
        _log.error(f"{error}; going on with plain torch")
