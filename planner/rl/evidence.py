"""How sure the roofline of generation is."""

from __future__ import annotations

# measured over predicted time of a token that eight in ten of 1,190 serving rows lie between:
# dense models and mixtures of experts in 16 and 8 bit on H100, H200, B200 and GB200 under vLLM,
# SGLang and TensorRT-LLM (silicon_sample.csv of ai-dynamo/aiconfigurator); docs/reinforcement.md
BAND = (0.77, 1.23)
