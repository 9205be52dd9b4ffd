"""A probe is a command and a pure parser; recorded outputs are its tests."""
