"""``python -m finemorphs`` is the command ``finemorphs``."""

from __future__ import annotations

from finemorphs.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
