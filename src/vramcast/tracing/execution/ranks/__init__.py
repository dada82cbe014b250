"""One rank of a distributed run: groups that only pretend, and the libraries that cut and wrap a model."""
