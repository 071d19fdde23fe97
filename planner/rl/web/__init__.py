"""The tab of reinforcement learning."""
