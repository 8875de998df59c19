"""Reports of out-of-memory errors (STALLOC_OOM_REPORT): what Python knows of blocks, and all of it in mode Torch."""
