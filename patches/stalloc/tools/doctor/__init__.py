"""What `stalloc doctor` looks at: one module a subject, each check a function of a Machine that gives Findings."""
