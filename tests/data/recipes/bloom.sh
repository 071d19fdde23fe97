#!/bin/bash
#SBATCH --nodes=48
#SBATCH --ntasks-per-node=1          # one task
#SBATCH --gres=gpu:8
GPUS_PER_NODE=8
NNODES=$SLURM_NNODES
TP_SIZE=4
PP_SIZE=12
SEQ_LEN=2048
ZERO_STAGE=0
GPT_ARGS=" \
    --pp-partition-method 'type:transformer|embedding' \
    --num-layers 70 --hidden-size 14336 --num-attention-heads 112 \
    --seq-length $SEQ_LEN --max-position-embeddings $SEQ_LEN \
    --micro-batch-size 2 --rampup-batch-size 192 16 9_765_625 --global-batch-size 2048 \
    --train-samples 220_000_000 --embed-layernorm --bf16 --position-embedding-type alibi \
    --checkpoint-activations --pad-vocab-size-to 250880 \
    "
config_json="./ds_config.$SLURM_JOB_ID.json"
cat <<EOT > $config_json
{
  "train_micro_batch_size_per_gpu": 2,
  "zero_optimization": {"stage": $ZERO_STAGE}
}
EOT
DEEPSPEED_ARGS=" --deepspeed --deepspeed_config ${config_json} --zero-stage ${ZERO_STAGE} --deepspeed-activation-checkpointing "
export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --max_restarts 0 --tee 3 "
export CMD=" \
    `pwd`/pretrain_gpt.py --tensor-model-parallel-size $TP_SIZE --pipeline-model-parallel-size $PP_SIZE \
    $GPT_ARGS --num-workers 2 --distributed-backend nccl $DEEPSPEED_ARGS \
    "
echo $CMD
SRUN_ARGS=" --wait=60 --kill-on-bad-exit=1 "
clear; srun $SRUN_ARGS --jobid $SLURM_JOB_ID bash -c "$LAUNCHER --node_rank \$SLURM_PROCID $CMD" 2>&1 | tee -a x
