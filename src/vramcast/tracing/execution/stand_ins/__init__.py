"""What stands in for what a machine without a GPU lacks: torch.cuda, compiled packages, weights on a hub."""
