#!/bin/bash
# The first try: Llama 3 8B on eight nodes of eight GPUs, cautious with memory.
export CUDA_DEVICE_MAX_CONNECTIONS=1
NODES=${SLURM_NNODES:-8}
GPUS_PER_NODE=8

MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --swiglu --normalization RMSNorm --disable-bias-linear
    --position-embedding-type rope --rotary-base 500000
    --untie-embeddings-and-output-weights --vocab-size 128256
)
TRAIN_ARGS=(
    --micro-batch-size 1 --global-batch-size 512 --seq-length 8192
    --max-position-embeddings 8192 --train-iters 10000 --lr 3e-4 --bf16
    --attention-dropout 0 --hidden-dropout 0 --use-flash-attn
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer
    --overlap-grad-reduce --overlap-param-gather
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
)
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NODES pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${TRAIN_ARGS[@]}" "${PARALLEL_ARGS[@]}"
