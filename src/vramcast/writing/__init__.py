"""From a question to what people run: lines, compose files, manifests, training configurations. The way back of reading."""
