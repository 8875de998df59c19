"""torchtitan's own trainer on its debug model: made-up text, accumulated batches; "cuda" is the CPU."""

import cuda_on_cpu  # isort: skip
import json
import os
import tempfile
from pathlib import Path

import torch
import torchtitan.train
from outcome import leave
from tokenizers import Tokenizer, models, pre_tokenizers
from torchtitan.config import ConfigManager
from torchtitan.hf_datasets import text_datasets

assert cuda_on_cpu.CPU.type == "cpu"
losses: list[float] = []


def text(row: int) -> dict[str, str]:
    words = torch.randint(0, 90, (400,), generator=torch.Generator().manual_seed(row))
    return {"text": " ".join(f"w{word}" for word in words.tolist())}


def write_tokenizer(directory: str) -> None:
    vocabulary = {f"w{i}": i for i in range(90)} | {"<s>": 90, "</s>": 91, "?": 92}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(os.path.join(directory, "tokenizer.json"))
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    Path(directory, "tokenizer_config.json").write_text(json.dumps(special))


def replace_what_this_machine_lacks() -> None:
    """Downloaded text, and a barrier over GPUs."""
    text_datasets.DATASETS["c4_test"].loader = lambda path: [text(row) for row in range(64)]
    text_datasets.split_dataset_by_node = lambda rows, *_: rows
    torchtitan.train.dist_utils.set_pg_timeouts = lambda **_: None


with tempfile.TemporaryDirectory() as directory:
    write_tokenizer(directory)
    replace_what_this_machine_lacks()
    options = {
        "model.name": "llama3",
        "model.flavor": "debugmodel",
        "model.hf_assets_path": directory,
        "training.dataset": "c4_test",
        "training.local_batch_size": 1,
        "training.global_batch_size": 2,
        "training.seq_len": 64,
        "training.steps": os.environ["STEPS"],
        "lr_scheduler.warmup_steps": 1,
        "lr_scheduler.min_lr_factor": 1.0,
        "metrics.log_freq": 1,
        "job.dump_folder": directory,
        "debug.seed": 7,
        "activation_checkpoint.mode": "none",
    }
    trainer = torchtitan.train.Trainer(ConfigManager().parse_args([f"--{k}={v}" for k, v in options.items()]))
    log = trainer.metrics_processor.log
    trainer.metrics_processor.log = lambda step, loss, *others, **kwargs: (
        losses.append(loss),
        log(step, loss, *others, **kwargs),
    )
    trainer.train()
    leave(losses, trainer.model_parts[0])
    trainer.close()
