"""The mixture, the skill library and its file: all that a robot needs. NumPy and safetensors only."""
