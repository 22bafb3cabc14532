"""The parts of models that integrate motion: pair forces, leapfrog steps, initial conditions."""
