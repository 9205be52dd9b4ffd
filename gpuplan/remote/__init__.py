"""The only code that touches another machine."""
