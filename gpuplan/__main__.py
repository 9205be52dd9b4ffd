"""`python -m gpuplan` is `gpuplan`."""

from gpuplan.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
