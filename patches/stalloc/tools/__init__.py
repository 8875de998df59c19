"""Commands and what they show: reports, fit, snapshots, doctor. Imports nothing of train."""
