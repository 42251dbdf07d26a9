"""The CPU engine on OpenVINO: GGUF files and OpenVINO folders, with the same bits in any batch."""
