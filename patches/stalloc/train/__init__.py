"""What a training process loads: the allocator put in place, marks, frameworks, sleep. Imports nothing of tools."""
