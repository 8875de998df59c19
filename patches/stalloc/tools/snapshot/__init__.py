"""PyTorch's memory snapshots, in and out: torch.cuda.memory._dump_snapshot to a trace, and a trace to a snapshot."""
