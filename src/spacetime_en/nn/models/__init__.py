"""The models, one file each; ``nn.presets`` has their names."""
