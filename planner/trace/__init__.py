"""Models traced from their own code: every operator of a step, counted on tensors without data."""
