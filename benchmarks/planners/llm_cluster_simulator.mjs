// zhebrak/llm-cluster-simulator, its engine as its page runs it: shipped GPUs and fabrics.
// node llm_cluster_simulator.mjs ENGINE.mjs, the engine bundled by esbuild; lines as of adapter.py

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const engine = await import(pathToFileURL(process.argv[2]).href);

const GPUS = {
  "a100-sxm4-40gb": "a100-40gb",
  "a100-sxm4-80gb": "a100-80gb",
  "a800-sxm4-80gb": "a800-80gb",
  "b200-sxm-180gb": "b200",
  "gb200-186gb": "gb200",
  "h100-pcie-80gb": "h100-pcie",
  "h100-sxm5-80gb": "h100-sxm",
  "h200-sxm-141gb": "h200-sxm",
  "h800-sxm5-80gb": "h800-sxm",
  "l40-48gb": "l40",
  "l40s": "l40s",
  "mi300x-192gb": "mi300x",
  "mi350x-288gb": "mi350x",
  rtx3090: "rtx-3090",
  rtx4090: "rtx-4090",
  "rtx6000-ada": "rtx-6000-ada",
  "v100-sxm2-32gb": "v100-32gb",
};
const PRECISIONS = { fp32: "fp32", tf32: "tf32", fp16: "fp16", bf16: "bf16" };
const SHARDED = ["ddp-tp-pp", "zero1-tp-pp", "zero1-tp-pp", "fsdp-tp-pp"];
const TARGETS = { qv: "q_v", attention: "q_k_v_o", all: "all_linear" };

function want(holds, reason) {
  if (!holds) throw new Error(reason);
}

function precision(name) {
  const word = PRECISIONS[name] ?? (/^(fp8|mxfp8)/.test(name) ? "fp8" : name === "nvfp4" && "fp4");
  want(word, `precision ${name}`);
  return word;
}

function model(recipe) {
  const experts = recipe.experts > 1 && {
    numExperts: recipe.experts,
    numActiveExperts: recipe.experts_per_token,
    expertIntermediateSize: recipe.expert_ffn,
    numSharedExperts: recipe.shared_experts,
    firstKDenseLayers: recipe.dense_layers,
  };
  const config = {
    name: recipe.run_id,
    numLayers: recipe.layers,
    hiddenSize: recipe.hidden,
    intermediateSize: recipe.ffn,
    numAttentionHeads: recipe.heads,
    numKvHeads: recipe.kv_heads,
    headDim: recipe.head_dim,
    vocabSize: recipe.vocab,
    maxSeqLength: recipe.seq_len,
    attentionType: recipe.kv_heads === recipe.heads ? "mha" : "gqa",
    gatedMLP: recipe.gated,
    activation: recipe.gated ? "silu" : "gelu",
    normType: recipe.gated ? "rmsnorm" : "layernorm",
    tiedEmbeddings: recipe.tied,
    ...experts,
  };
  return engine.buildModelSpec(config, recipe.seq_len);
}

function tuning(recipe) {
  if (recipe.peft === "none") return {};
  want(["lora", "qlora"].includes(recipe.peft), `method ${recipe.peft}`);
  want(TARGETS[recipe.targets], "targets of adapters");
  return {
    finetuningMethod: recipe.peft,
    loraRank: recipe.rank,
    loraTargetModules: TARGETS[recipe.targets],
  };
}

function answer(recipe) {
  want(recipe.plain, "blocks other than attention and MLP");
  want(recipe.offload === "none", "offloading");
  want(["none", "selective", "full"].includes(recipe.recompute), `recompute ${recipe.recompute}`);
  want(GPUS[recipe.gpu], `GPU ${recipe.gpu}`);
  const node = Math.min(recipe.gpus, recipe.gpus_per_node);
  const gpu = GPUS[recipe.gpu];
  const clusterConfig =
    recipe.gpus <= node
      ? engine.createSingleNodeCluster(gpu, recipe.gpus)
      : engine.createMultiNodeCluster(gpu, node, recipe.gpus / node);
  const metrics = engine.getSimulationMetrics({
    modelSpec: model(recipe),
    clusterConfig,
    globalBatchSize: recipe.global_batch,
    microBatchSize: recipe.micro_batch,
    sequenceLength: recipe.seq_len,
    strategyType: SHARDED[recipe.zero],
    strategyConfig: {
      tp: recipe.tp,
      pp: recipe.pp,
      dp: recipe.dp,
      ep: recipe.ep,
      cp: recipe.cp,
      sequenceParallel: recipe.sequence_parallel,
      pipelineSchedule: recipe.vpp > 1 ? "interleaved-1f1b" : "1f1b",
      interleavedStages: recipe.vpp,
    },
    activationCheckpointing: recipe.recompute !== "none",
    checkpointingGranularity: recipe.recompute === "selective" ? "selective" : "full",
    flashAttention: recipe.flash,
    mixedPrecision: precision(recipe.precision),
    ...tuning(recipe),
  });
  return { step_s: metrics.stepTimeMs / 1000, peak_gib: metrics.memoryPerGPU.total / 2 ** 30 };
}

for await (const line of createInterface({ input: process.stdin })) {
  const recipe = JSON.parse(line);
  let reply;
  try {
    reply = answer(recipe);
  } catch (error) {
    reply = { refused: String(error.message).split("\n")[0] };
  }
  console.log(JSON.stringify({ run_id: recipe.run_id, ...reply }));
}
