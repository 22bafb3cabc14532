"""Layers, blocks and models."""
