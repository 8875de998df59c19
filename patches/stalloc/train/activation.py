"""Activation by an import: of stalloc, or of torch, whose entry point group `torch.backends` has autoload.py."""

from __future__ import annotations

import os
import sys

from stalloc.core import config, log
from stalloc.train import install, process

_tried = False


def activate() -> None:
    """At the end of `import torch`: an obstacle is printed, once, and the program goes on with plain torch.

    Raises:
        SystemExit: a variable's value is not allowed, which nobody can have meant; one line names it.
        RuntimeError: under STALLOC_STRICT=1, when the allocator could not be put in place.
    """
    global _tried
    if _tried or not process.trains():
        return
    _tried = True  # the first import of stalloc comes here, then the entry point itself
    try:
        activate_now()
    except Exception as error:  # whatever it is: torch must stay importable
        if os.environ.get("STALLOC_STRICT") == "1":
            raise
        log.error(f"{error}; going on with plain torch")


def activate_now() -> None:
    """Runs in `import stalloc`, which reports obstacles to its importer.

    Raises:
        SystemExit: as above.
        RuntimeError: the allocator could not be put in place.
    """
    try:
        install.activate()
    except config.ConfigError as error:
        log.fatal(str(error))
        sys.exit(2)
