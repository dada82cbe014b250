"""What starts a server: an engine's own line, a compose file, a Kubernetes manifest."""
