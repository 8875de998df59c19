"""The choice of `stalloc fit`: a micro-batch and changes from a trace, written as settings."""
