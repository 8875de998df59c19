"""Traces without a device: fake tensors in the place of a GPU's (or the CPU's), and their requests.

    tensors.py   decides which tensors are fake, and reports those that are made
    blocks.py    storages as blocks: their births and deaths go to the trace
    unknown.py   what stands in for values that nobody computed
    cuda.py      a torch.cuda that answers as for one GPU
    choices.py   what torch would choose on a GPU, where it queries the device
    workspaces.py  what cuBLAS takes of torch's allocator
    ranks.py     one rank of several, alone
    running.py   all of it in place, for a process or a `with` block

A fake trace has what torch's operators return and what autograd keeps. It does not have what operators take and give
back inside: workspaces of cuDNN, temporaries of sorts and reductions, buffers of NCCL.
"""
