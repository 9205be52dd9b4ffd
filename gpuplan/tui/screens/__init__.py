"""One screen a module: wiring of widgets to the app's state and commands."""
