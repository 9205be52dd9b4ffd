"""The Textual app: a face over `operations` and `present`, with no logic of its own."""
