"""transformers' Trainer: accumulation, an evaluation and a checkpoint in the middle. Micro-batches have $ROWS rows.
With other than 2, the default, there is no dropout."""

import os
import tempfile

import torch
import transformers
from outcome import DEVICE, Tokens, leave

ROWS = int(os.environ.get("ROWS", "2"))
dropout = {} if ROWS == 2 else {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
torch.manual_seed(1)
config = transformers.GPT2Config(vocab_size=96, n_positions=48, n_embd=64, n_layer=2, n_head=4, **dropout)
model = transformers.GPT2LMHeadModel(config)
losses = []


class Losses(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        losses.extend(value for name, value in logs.items() if name in ("loss", "eval_loss"))


with tempfile.TemporaryDirectory() as directory:
    arguments = transformers.TrainingArguments(
        directory,
        max_steps=int(os.environ["STEPS"]),
        per_device_train_batch_size=ROWS,
        gradient_accumulation_steps=2,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=4,
        save_strategy="steps",
        save_steps=4,
        use_cpu=DEVICE == "cpu",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    transformers.Trainer(
        model, arguments, train_dataset=Tokens(32 * ROWS), eval_dataset=Tokens(4), callbacks=[Losses()]
    ).train()
leave(losses, model)
