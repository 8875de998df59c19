"""Names of tensors in the words that PyTorch keeps with each block of a history (`user_metadata`)."""

from __future__ import annotations

from collections.abc import Sequence

_ROLES = ("parameter", "gradient", "optimizer state", "buffer", "input", "tensor")
_APART = ", "


def written(role: str, names: Sequence[str]) -> str:
    """The names, as "parameter: GPT.up.weight, GPT.up.bias"; empty without a name."""
    return f"{role or _ROLES[-1]}: {_APART.join(names)}" if names else ""


def read(words: str) -> tuple[str, list[str]]:
    """Role and names; ("", []) where the words are others, as a program's own."""
    role, colon, names = words.partition(": ")
    if not colon or role not in _ROLES:
        return "", []
    return ("" if role == _ROLES[-1] else role), names.split(_APART)
