"""Tables for a terminal: of models, of a task, of an evaluation."""
