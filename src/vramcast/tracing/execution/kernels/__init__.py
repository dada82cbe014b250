"""What operators return, keep and take while they run, as a GPU's kernels would."""
