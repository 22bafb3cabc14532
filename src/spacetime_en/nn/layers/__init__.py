"""The layers of the paper: graph convolution in space, attention over time, blocks of both."""
