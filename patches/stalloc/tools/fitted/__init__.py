"""`stalloc run --fit` before the program: it is tried, what fits is chosen, and the choice is kept."""
