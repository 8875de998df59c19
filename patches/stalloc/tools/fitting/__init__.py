"""What a run can do with its memory: chosen from a trace (`stalloc fit`), written as settings."""
