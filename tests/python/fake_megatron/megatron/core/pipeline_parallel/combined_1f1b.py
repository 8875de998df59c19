from megatron.core.tensor import Tensor


def combined_forward_backward_step(
    forward_step_func,
    data_iterator,
    f_model,
    num_microbatches,
    input_tensor,
    forward_data_store,
    b_model,
    b_input_tensor,
    b_output_tensor,
    b_output_tensor_grad,
    config,
    f_model_chunk_id=None,
    current_microbatch=None,
):
    return (Tensor() if f_model is not None else None), 0, None


def combined_1f1b_schedule_for_no_pipelining(model, num_microbatches, config):
    output = None
    for i in range(num_microbatches + 1):
        forward = model if i < num_microbatches else None
        backward = model if i > 0 else None
        index = {"current_microbatch": i} if forward is not None else {}
        output, _, _ = combined_forward_backward_step(
            None, None, forward, num_microbatches, None, [], backward, None, output, None, config, **index
        )
