"""Settings for all tests."""

import torch
from hypothesis import settings

# Reproducible, and never a verdict on how busy the machine is.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("default")
torch.set_num_threads(1)  # tiny tensors: threads would only wait for each other
