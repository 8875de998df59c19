from megatron.core.package_info import before, leave_out_missing
from megatron.core.pipeline_parallel.combined_1f1b import combined_1f1b_schedule_for_no_pipelining
from megatron.core.tensor import Tensor
from megatron.core.transformer.cuda_graphs import create_cudagraphs


def forward_step(
    forward_step_func,
    data_iterator,
    model,
    num_microbatches,
    input_tensor,
    forward_data_store,
    config,
    cp_group_size,
    collect_non_loss_data=False,
    checkpoint_activations_microbatch=None,
    is_first_microbatch=False,
    current_microbatch=None,
    vp_stage=None,
    is_last_stage=True,
):
    output = forward_step_func(data_iterator, model)
    return (output if config.get("bare") else [output]), 0


def backward_step(input_tensor, output_tensor, output_tensor_grad, config):
    (output_tensor[0] if isinstance(output_tensor, list) else output_tensor).backward()


if not before(0, 17):

    def backward_step_multimodule(input_tensor, output_tensor, output_tensor_grad, config, language_model_module_name):
        next(iter(output_tensor.values())).backward()


def finish_embedding_wgrad_compute(config, embedding_module, is_last_stage, tp_group):
    return "computed"


class Config(dict):
    defer_embedding_wgrad_compute = False


def forward_backward_no_pipelining(*, forward_step_func, data_iterator, model, num_microbatches, forward_only, config):
    if config.get("combined"):
        combined_1f1b_schedule_for_no_pipelining(model, num_microbatches, config)
        return
    for i in range(num_microbatches):
        output, _ = forward_step(
            forward_step_func, data_iterator, model[0], num_microbatches, None, [], config, 1, current_microbatch=i
        )
        if not forward_only:
            backward_step(None, output, None, config)


def forward_backward_pipelining_with_interleaving(
    *, forward_step_func, data_iterator, model, num_microbatches, forward_only, config
):
    """All forward passes, chunk by chunk; then the backward passes, the last chunk first."""
    outputs = {}
    for chunk in range(len(model)):
        for i in range(num_microbatches):
            outputs[chunk, i], _ = forward_step(
                forward_step_func,
                data_iterator,
                model[chunk],
                num_microbatches,
                Tensor(),
                [],
                config,
                1,
                current_microbatch=i,
                vp_stage=chunk,
            )
    for chunk in reversed(range(len(model))):
        for i in range(num_microbatches):
            if not forward_only:
                backward_step(None, outputs.pop((chunk, i)), None, config)
    finish_embedding_wgrad_compute(config, None, True, None)
    if config.get("graphs"):
        create_cudagraphs()


def forward_backward_pipelining_without_interleaving(**arguments):
    forward_backward_no_pipelining(**arguments)


def get_forward_backward_func(model):
    return forward_backward_pipelining_with_interleaving if len(model) > 1 else forward_backward_no_pipelining


leave_out_missing(__name__, globals())
