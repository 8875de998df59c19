"""Which workloads may be looked at while a rule is made, and which only judge it."""

from __future__ import annotations

import hashlib


def only_judges(name: str) -> bool:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2 == 1
