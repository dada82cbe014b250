"""Questions answered by tracing: requests from recipes and layouts, answers, limits, remedies, generation."""
