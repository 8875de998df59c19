"""What a run says about itself, and what a trace keeps of it: marks, names, modules, tokens."""
