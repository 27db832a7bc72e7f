#!/usr/bin/env python3
"""Pictures of a report, to look at.

usage: shots.py PAGE OUT_PREFIX [WIDTH]      writes OUT_PREFIX_light.png and OUT_PREFIX_dark.png
"""

import sys

from browser import Browser

page_path, prefix = sys.argv[1:3]
width = int(sys.argv[3]) if len(sys.argv) > 3 else 1240
with Browser(width=width) as browser:
    for theme in ("light", "dark"):
        page = browser.open(page_path, dark=theme == "dark")
        page.screenshot(f"{prefix}_{theme}.png", width)
        print(theme, "ready after", page.eval("document.body.dataset.ready"), "ms; console:", page.console, "requests:", len(page.requests))
