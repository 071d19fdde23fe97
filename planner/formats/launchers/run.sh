#!/bin/bash
{% for line in comments %}
# {{ line }}
{% endfor %}
# By hand: a call per node, with its NODE_RANK and the MASTER_ADDR of the first.
# DPPLAN_PREFLIGHT=1 compares each node with the plan first, where dpplan is installed.
set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ -n "${DPPLAN_PREFLIGHT:-}" ]; then
  {{ check }} || exit $?
fi
{% if checkout %}
cd "${CHECKOUT:-.}"  # of {{ checkout }}
{% endif %}
{% for name, value in environment.items() %}
export {{ name }}={{ value }}
{% endfor %}
{% if arguments %}

ARGS=(
{% for line in arguments %}
  {{ line }}
{% endfor %}
)
{% endif %}

{% if per_node %}
export NNODES={{ nodes }} NODE_RANK="${NODE_RANK:-0}" NPROC_PER_NODE={{ gpus_per_node }}
{{ program }} "$@"
{% else %}
torchrun --nnodes {{ nodes }} --nproc-per-node {{ gpus_per_node }} \
  --node-rank "${NODE_RANK:-0}" --master-port "${MASTER_PORT:-29500}" \
  --master-addr "${MASTER_ADDR:-127.0.0.1}" \
  {{ program }}{{ ' "${ARGS[@]}"' if arguments }} "$@"
{% endif %}
