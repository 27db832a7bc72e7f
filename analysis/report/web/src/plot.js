// Canvases that know their theme, their size, the pointer and the keyboard.

import { h } from './dom.js';

// {box, redraw(), width(): as drawn last, 0 if never}
const plots = [];
const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const plot = plots.find(({ box }) => box === target);
    if (plot.width() !== target.clientWidth) plot.redraw();
  }
});

// Kept until the theme changes: to compute a style takes longer than to draw with it.
const colours = new Map();
export function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim());
  return colours.get(name);
}

// Of a rank's name beside its row: ranks that a finding names are red wherever they are.
export const rankColour = (data, rank, current) => colour(current ? 'fg' : data.named.includes(rank) ? 'wait' : 'fg2');

export function addPlot(plot) {
  plots.push(plot);
}
export function redrawAll() {
  colours.clear();
  for (const plot of plots) plot.redraw();
}

// Those never drawn yet, if they are wanted.
export function drawNew(wanted = () => true) {
  for (const plot of plots) {
    if (plot.begun || !wanted(plot.box)) continue;
    plot.begun = true;
    plot.redraw();
    resized.observe(plot.box);
  }
}

const tip = h('div', { id: 'tip', role: 'status', 'aria-live': 'polite', hidden: true });
export const tipElement = tip;

export function showTip(lines, x, y) {
  tip.replaceChildren(...lines.map((line, i) => h('div', { class: i ? '' : 'first' }, h('bdi', {}, line))));
  tip.hidden = false;
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = Math.max(4, Math.min(x + 14, room) + scrollX) + 'px';
  const below = y + 16 + tip.offsetHeight < innerHeight;
  tip.style.top = (below ? y + 16 : Math.max(4, y - tip.offsetHeight - 10)) + scrollY + 'px';
}
export function hideTip() {
  tip.hidden = true;
}

// draw(g, width, height) with height() in CSS pixels. at(x, y) -> {lines, x, y}|null: what lies there; keys(key,
// shift) -> the same, or true (redrawn, nothing to tell), or false (not ours).
export function canvasPlot({ label, height, draw, at, keys, pressed }) {
  const canvas = h('canvas', { tabindex: 0, role: 'img', 'aria-label': label });
  const g = canvas.getContext('2d');
  const box = h('div', { class: 'plot' }, canvas);
  // Before it is drawn, too: what is below stays where it is.
  canvas.style.height = height() + 'px';
  let width = 0;
  const redraw = () => {
    if (!box.clientWidth) return;
    width = box.clientWidth;
    const tall = height(), ratio = Math.min(3, devicePixelRatio || 1);
    canvas.style.height = tall + 'px';
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(tall * ratio);
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.font = '11px system-ui, sans-serif';
    g.textBaseline = 'middle';
    draw(g, width, tall);
  };
  const tell = (found, rect) => (found ? showTip(found.lines, rect.left + found.x, rect.top + found.y) : hideTip());
  canvas.addEventListener('pointermove', (event) => {
    const rect = canvas.getBoundingClientRect();
    tell(at(event.clientX - rect.left, event.clientY - rect.top), rect);
  });
  canvas.addEventListener('pointerleave', hideTip);
  canvas.addEventListener('blur', hideTip);
  if (pressed) canvas.addEventListener('click', (event) => {
    const rect = canvas.getBoundingClientRect();
    pressed(event.clientX - rect.left, event.clientY - rect.top);
  });
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape') return hideTip();
    const found = keys?.(event.key, event.shiftKey);
    if (!found) return;
    event.preventDefault();
    if (found !== true) tell(found, canvas.getBoundingClientRect());
  });
  addPlot({ box, redraw, width: () => width });
  return { box, canvas, redraw };
}

// Stripes over a colour: what is hidden does not look like what costs.
export function stripes(g, base, line) {
  const tile = document.createElement('canvas'), ratio = Math.min(3, devicePixelRatio || 1);
  tile.width = tile.height = Math.round(6 * ratio);
  const t = tile.getContext('2d');
  t.scale(tile.width / 6, tile.height / 6);
  t.fillStyle = base;
  t.fillRect(0, 0, 6, 6);
  t.strokeStyle = line;
  t.lineWidth = 1.3;
  t.beginPath();
  for (const x of [-6, 0, 6]) {
    t.moveTo(x, 6);
    t.lineTo(x + 6, 0);
  }
  t.stroke();
  const pattern = g.createPattern(tile, 'repeat');
  pattern.setTransform(new DOMMatrix().scale(6 / tile.width));
  return pattern;
}

// 1, 2 or 5 times a power of ten, about `ticks` of them from 0 to `span`.
export function niceStep(span, ticks) {
  const raw = Math.max(span, 1e-9) / ticks, power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
}

const kViridis = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
export function viridis(t) {
  const at = Math.max(0, Math.min(0.9999, t)) * 4, i = Math.floor(at), f = at - i;
  return kViridis[i].map((v, k) => Math.round(v + (kViridis[i + 1][k] - v) * f));
}

// Marks of a logarithmic axis of sizes: powers of two, or of four and more where these are many; even steps where the
// axis is zoomed in to less than two of them.
export function sizeSplits(u, axis, least, most) {
  const room = Math.max(2, u.bbox.width / (devicePixelRatio || 1) / 70);
  for (let bits = 1; ; ++bits) {
    const powers = [];
    for (let e = Math.ceil(Math.log2(least) / bits) * bits; 2 ** e <= most; e += bits) powers.push(2 ** e);
    if (powers.length > room) continue;
    if (powers.length > 1) return powers;
    const step = niceStep(most - least, room), first = Math.ceil(least / step);
    return Array.from({ length: Math.max(0, Math.floor(most / step) - first + 1) }, (_, i) => (first + i) * step);
  }
}
