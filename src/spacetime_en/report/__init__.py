"""What a person looks at: pictures, scenes in motion, tables, the demonstration.

Imports runs and everything below them.
"""
