#!/bin/sh
#SBATCH --nodes=8
#SBATCH --gpus-per-node=8
#SBATCH --time=12:00:00
# Ask before the job takes 64 GPUs. DPPLAN_SKIP=1 sbatch preflight.sh starts it without asking.
if [ "${DPPLAN_SKIP:-0}" != 1 ]; then
    dpplan estimate --scenario docs/examples/preflight.toml > preflight.txt
    status=$?
    case $status in
        0) ;;
        3) echo "it does not fit; see preflight.txt for what would" >&2; exit $status ;;
        4) echo "a requirement does not hold; see preflight.txt, or set DPPLAN_SKIP=1" >&2; exit $status ;;
        *) exit $status ;;
    esac
fi
exec srun torchrun --nproc-per-node 8 train.py
