#!/usr/bin/env python3
"""A picture of an exported timeline: what the .pftrace holds, laid out as ui.perfetto.dev does it. Not a screenshot of
that page, which needs the network; drawn from the file by this script.

usage: picture.py TIMELINE.pftrace OUT.svg BEGIN_MS END_MS [TRACK ...]     times from the first slice on; tracks by the
                                                                          beginning of their names, default all with slices
"""

import html
import pathlib
import sys

from timeline import Timeline

NAMES, WIDTH, ROW, GAP = 210, 1240, 17, 4
# Hues far enough apart to tell neighbours; a name keeps its own. Steps count as one name.
HUES = (205, 25, 130, 280, 50, 340, 170, 235, 90, 310)
hue_of = {}


def colour(name):
    kind = "step" if name.startswith("step ") else name
    return f"hsl({hue_of.setdefault(kind, HUES[len(hue_of) % len(HUES)])} 45% 64%)"


def main():
    source, target, begin_ms, end_ms, *wanted = sys.argv[1:]
    trace = Timeline(pathlib.Path(source).read_bytes())
    first = min(s.begin for s in trace.slices)
    begin, end = first + float(begin_ms) * 1e6, first + float(end_ms) * 1e6
    scale = (WIDTH - NAMES) / (end - begin)
    rows, y = [], 24

    def text(x, at, words, size=11, fill="#24292f", clip=None):
        words = words if clip is None else words[:max(int(clip / (0.55 * size)), 0)]
        if words:
            rows.append(f'<text x="{x:.1f}" y="{at + 12:.1f}" font-size="{size}" fill="{fill}">{html.escape(words)}</text>')

    for tick in range(11):
        at = begin + (end - begin) * tick / 10
        x = NAMES + (at - begin) * scale
        rows.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="18" y2="100%" stroke="#d0d7de" stroke-width="0.5"/>')
        text(x + 3, 2, f"{(at - first) / 1e6:.1f} ms", 10, "#57606a")
    for process, facts in sorted(trace.processes.items(), key=lambda each: each[1]["order"]):
        rows.append(f'<rect x="0" y="{y}" width="{WIDTH}" height="{ROW + 2}" fill="#dde5ee"/>')
        text(6, y + 1, facts["name"], 12)
        y += ROW + 2 + GAP
        tracks = [t for t in trace.tracks.values() if t["process"] == process and not t["counter"]
                  and (not wanted or t["name"].startswith(tuple(wanted)))]
        for track in sorted(tracks, key=lambda each: each["order"]):
            slices = [s for s in trace.slices
                      if s.pid == facts["pid"] and s.track == track["name"] and s.end > begin and s.begin < end]
            if not slices:
                continue
            text(16, y, track["name"], 11, clip=NAMES - 20)
            for s in slices:
                left, right = NAMES + (max(s.begin, begin) - begin) * scale, NAMES + (min(s.end, end) - begin) * scale
                top = y + s.depth * (ROW + 1)
                rows.append(f'<rect x="{left:.2f}" y="{top}" width="{max(right - left, 0.5):.2f}" height="{ROW}" '
                            f'fill="{colour(s.name)}" stroke="#ffffff" stroke-width="0.4"><title>{html.escape(s.name)}</title></rect>')
                text(left + 3, top, s.name, 10, "#101418", right - left - 4)
            y += (1 + max(s.depth for s in slices)) * (ROW + 1) + GAP
    pathlib.Path(target).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
        f'font-family="sans-serif"><rect width="100%" height="100%" fill="#ffffff"/>{"".join(rows)}</svg>\n')


if __name__ == "__main__":
    main()
