"""The layers of the paper: convolution in space, attention over time, a block of both."""
