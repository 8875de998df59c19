"""train.py, once for each argument: a JSON list of its arguments."""

from __future__ import annotations

import json
import sys

import train

for arguments in sys.argv[1:]:
    sys.argv = ["train.py", *json.loads(arguments)]
    train.main()
