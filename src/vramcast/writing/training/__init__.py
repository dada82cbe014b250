"""What starts a training of a question: torchtitan's TOML, Megatron's flags, axolotl's and LLaMA-Factory's YAML, accelerate's."""
