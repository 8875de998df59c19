from megatron.core.full_cuda_graph import FullCudaGraphWrapper
from megatron.core.package_info import leave_out_missing
from megatron.core.pipeline_parallel.schedules import Config, get_forward_backward_func
from megatron.training.checkpointing import load_checkpoint, save_checkpoint
from megatron.training.utils import report_memory


def train_step(
    forward_step_func,
    data_iterator,
    model,
    optimizer,
    opt_param_scheduler,
    config,
    forward_backward_func,
    iteration=None,
    pg_collection=None,
):
    for _ in range(config.get("runs", 1)):  # the rerun state machine's loop
        forward_backward_func(
            forward_step_func=forward_step_func,
            data_iterator=data_iterator,
            model=model,
            num_microbatches=config.get("microbatches", 2),
            forward_only=False,
            config=config,
        )
    optimizer.step()
    return {}, 0


def evaluate(forward_step_func, data_iterator, model, config, eval_iters=None):
    get_forward_backward_func(model)(
        forward_step_func=forward_step_func,
        data_iterator=data_iterator,
        model=model,
        num_microbatches=1,
        forward_only=True,
        config=config,
    )


def evaluate_and_print_results(prefix, forward_step_func, data_iterator, model, iteration, config):
    evaluate(forward_step_func, data_iterator, model, config)


def save_checkpoint_and_time(iteration, model):
    report_memory(f"(before save_checkpoint for iteration {iteration})")
    save_checkpoint(iteration)


def pretrain(forward_step_func, model, optimizer, iterations, start=0, load=False, save_at=(), eval_at=(), **options):
    config = Config(options)
    if load:
        start = load_checkpoint(model, optimizer)
    forward_backward_func = get_forward_backward_func(model)
    if "full_graph" in options:
        forward_backward_func = FullCudaGraphWrapper(forward_backward_func, options["full_graph"])
    for iteration in range(start, start + iterations):
        train_step(forward_step_func, None, model, optimizer, None, config, forward_backward_func, iteration=iteration)
        if iteration in eval_at:
            evaluate_and_print_results("", forward_step_func, None, model, iteration, config)
        if iteration in save_at:
            save_checkpoint_and_time(iteration, model)


leave_out_missing(__name__, globals())
