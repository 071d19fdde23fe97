"""Bytes that frameworks' code allocates in a training step, counted on fake tensors without a GPU,
and the planner's ledger beside them."""
