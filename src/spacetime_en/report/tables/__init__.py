"""Tables for a terminal: the presets, a task, an evaluation."""
