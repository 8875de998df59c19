"""Marks for training frameworks other than Megatron, one module each; `_adapters.py` applies them."""
