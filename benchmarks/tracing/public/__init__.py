"""Published GPU runs executed again on fake tensors: which rows, with which program and libraries, and what came out."""
