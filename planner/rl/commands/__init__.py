"""Commands of reinforcement learning."""
