"""The checks of `stalloc doctor`: one module a subject, each check a function of a Machine that gives Findings."""
