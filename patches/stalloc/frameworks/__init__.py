"""Marks for training frameworks other than Megatron, one module each; `stalloc/_frameworks.py` applies them."""
