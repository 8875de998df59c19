class FullCudaGraphWrapper:
    curr_iteration = {"training": 0, "validation": 0}

    def __init__(self, forward_backward_func, cuda_graph_warmup_steps=1):
        self.forward_backward_func = forward_backward_func
        self.cuda_graph_warmup_steps = cuda_graph_warmup_steps

    def curr_iter(self, stage):
        return self.curr_iteration[stage]

    def __call__(self, *args, **kwargs):
        stage = "validation" if kwargs["forward_only"] else "training"
        if self.curr_iter(stage) <= self.cuda_graph_warmup_steps:  # later ones replay
            self.forward_backward_func(*args, **kwargs)
        self.curr_iteration[stage] += 1
