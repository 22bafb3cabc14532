"""The parts of models that integrate motions: forces between pairs, steps, initial conditions."""
