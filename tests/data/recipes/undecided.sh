torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 --global-batch-size 8 --bf16 \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 \
  --use-rotary-position-embeddings --tensor-model-parallel-size 8 --our-activation-checkpointing
