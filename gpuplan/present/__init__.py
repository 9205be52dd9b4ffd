"""Findings and documents: what a plan says, in words and as data. No colours, no I/O."""
