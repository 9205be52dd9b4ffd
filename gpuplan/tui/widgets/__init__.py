"""Widgets that know rows and documents, not fleets or plans."""
