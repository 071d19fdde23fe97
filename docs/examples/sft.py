"""LoRA of an 8B model without checkpointing, which a card of 24 GB is too small for."""

# ruff: noqa: F821
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype="bfloat16")
args = SFTConfig(
    output_dir="out",
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    max_length=2048,
    bf16=True,
    gradient_checkpointing=False,
)
peft = LoraConfig(r=16, target_modules="all-linear")
SFTTrainer(model=model, args=args, train_dataset=data, peft_config=peft).train()
