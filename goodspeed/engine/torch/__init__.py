"""The engine on torch: checkpoints in safetensors on a CPU or a GPU, each tried at load."""
