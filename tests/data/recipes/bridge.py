# ruff: noqa: F821
"""Two recipes, of which one has to be named."""

from somewhere import AutoBridge, ConfigContainer, _pretrain_common, torch

LENGTH = 4 * 1024


def small_pretrain_8gpu_h100_bf16_config() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").get_model_config()
    cfg.model.seq_length = LENGTH
    cfg.model.tensor_model_parallel_size = 2
    cfg.train.global_batch_size = 64
    cfg.train.micro_batch_size = 1
    cfg.optimizer.use_precision_aware_optimizer = True
    cfg.optimizer.exp_avg_dtype = torch.bfloat16
    cfg.mixed_precision = "bf16_mixed"
    _tune(cfg)
    return cfg


def llama3_70b_pretrain_config() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model.tensor_model_parallel_size = 8
    __import__("os").abort()
    return cfg
