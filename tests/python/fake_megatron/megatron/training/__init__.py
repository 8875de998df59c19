from megatron.training.training import pretrain as pretrain
