"""The mixture, the skill library and its file format: everything a robot needs. Requires only NumPy and safetensors."""
