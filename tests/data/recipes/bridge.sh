srun torchrun --nproc_per_node=4 --nnodes=2 scripts/training/run_recipe.py \
    --recipe llama3_8b_pretrain_config model.tensor_model_parallel_size=2 \
    "train.global_batch_size=64" +train.micro_batch_size=2 model.seq_length=8192 \
    mixed_precision=bf16_mixed checkpoint.save=/shared/run
