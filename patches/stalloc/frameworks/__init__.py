"""Marks that a program sets itself: `stalloc.frameworks.loop`."""
