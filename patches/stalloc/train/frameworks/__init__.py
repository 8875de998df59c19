"""Marks for training frameworks other than Megatron, one module each; `adapters.py` applies them."""
