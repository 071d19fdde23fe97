#!/bin/bash
# A mixture of experts over 4 nodes, as a launch script writes it.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"
export WANDB_API_KEY="0123456789abcdef0123456789abcdef01234567"
NODES=${SLURM_NNODES:-4}
GPUS_PER_NODE=8
PP=$((NODES / 2))
DTYPE=fp8

MODEL_ARGS=(
    --num-layers 48
    --hidden-size 2048
    --ffn-hidden-size 6144
    --num-attention-heads 32
    --group-query-attention --num-query-groups 4
    --kv-channels 128
    --qk-layernorm --swiglu --normalization RMSNorm --disable-bias-linear
    --position-embedding-type rope  # no table of positions
    --untie-embeddings-and-output-weights
    --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768
    --vocab-size 151936
)
TRAIN_ARGS=" --micro-batch-size 1 --global-batch-size 512 --seq-length 4096 \
 --max-position-embeddings 32768 --train-iters 1000 --lr 3e-4 --bf16"
if [[ "$DTYPE" == "fp8" ]]; then
    TRAIN_ARGS+=" --fp8-format hybrid --fp8-recipe blockwise"
else
    TRAIN_ARGS+=" --fp8-format e4m3"
fi
case $PP in
    1) TP=4 ;;
    2) TP=2 ;;
    *) TP=1 ;;
esac
PARALLEL_ARGS="
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP}
    --expert-model-parallel-size 8 --sequence-parallel
    --num-layers-per-virtual-pipeline-stage 6 --use-distributed-optimizer
    --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep
    --moe-grouped-gemm --overlap-grad-reduce --overlap-param-gather
    --recompute-granularity selective --recompute-modules core_attn moe_act
"
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NODES --rdzv_id $SLURM_JOB_ID \
    /home/someone/Megatron-LM/pretrain_gpt.py "${MODEL_ARGS[@]}" $TRAIN_ARGS $PARALLEL_ARGS \
    --data-path /lustre/secret/data --wandb-project mine --frobnicate 3 --eval-iters $EVAL
