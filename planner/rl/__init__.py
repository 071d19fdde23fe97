"""Steps of reinforcement learning: generation, scoring, training and refit."""
