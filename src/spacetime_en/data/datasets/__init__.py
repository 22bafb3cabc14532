"""Data sets with a name: ``registry`` makes tasks of them, one file each says what they are."""
