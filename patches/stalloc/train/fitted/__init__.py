"""`stalloc run --fit` inside of the program: a trial that is traced, or a start that gets what was chosen."""
