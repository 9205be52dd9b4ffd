"""From a candidate to what is to run, and from what was printed to why it does not: pure, it never runs anything."""
