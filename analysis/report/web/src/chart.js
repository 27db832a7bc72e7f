// uPlot with what all our charts share: theme, size, nearest-point hover, arrow keys.

import './locale_guard.js';
import uPlot from 'uplot';
import { h } from './dom.js';
import { addPlot, colour, hideTip, showTip } from './plot.js';

// points(): [{x, y, lines}] in data units, for pointer and keyboard. options(): uPlot's, without size.
export function chart({ label, height, options, data, points, name }) {
  const box = h('div', { class: 'plot chart', tabindex: 0, role: 'img', 'aria-label': label });
  box.dataset.plot = name;
  let plot = null, at = -1, order = null;
  const nearest = (px, py) => {
    let best = null, least = 24 * 24;
    for (const point of points()) {
      const dx = plot.valToPos(point.x, 'x') - px, dy = plot.valToPos(point.y, 'y') - py, far = dx * dx + dy * dy;
      if (far < least) [best, least] = [point, far];
    }
    return best;
  };
  const tell = (point) => {
    if (!point) return hideTip();
    const rect = plot.over.getBoundingClientRect();
    showTip(typeof point.lines === 'function' ? point.lines() : point.lines, rect.left + plot.valToPos(point.x, 'x'), rect.top + plot.valToPos(point.y, 'y'));
  };
  const make = () => {
    const width = box.clientWidth;
    if (!width) return;
    plot?.destroy();
    const axis = { stroke: colour('fg2'), grid: { stroke: colour('line'), width: 1 }, ticks: { stroke: colour('line'), width: 1 }, font: '11px system-ui, sans-serif' };
    const own = options();
    plot = new uPlot({ width, height, legend: { show: false }, ...own, axes: own.axes.map((one) => ({ ...axis, ...one })) }, data(), box);
    plot.over.addEventListener('pointermove', (event) => {
      const rect = plot.over.getBoundingClientRect();
      tell(nearest(event.clientX - rect.left, event.clientY - rect.top));
    });
    plot.over.addEventListener('pointerleave', hideTip);
  };
  box.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') return hideTip();
    if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
    event.preventDefault();
    order ??= [...points()].sort((a, b) => a.x - b.x || a.y - b.y);
    if (!order.length) return;
    at = Math.max(0, Math.min(order.length - 1, at + (event.key === 'ArrowRight' ? 1 : -1)));
    tell(order[at]);
  });
  box.addEventListener('blur', hideTip);
  addPlot({ box, redraw: make, width: () => plot?.width ?? 0 });
  return { box, redraw: () => { order = null; at = -1; make(); } };
}

// A vertical line with a word at its top.
export function marker(u, x, text, stroke, row) {
  const { ctx, bbox } = u, ratio = devicePixelRatio || 1, at = u.valToPos(x, 'x', true);
  if (at < bbox.left || at > bbox.left + bbox.width) return;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = stroke;
  ctx.lineWidth = 1.5 * ratio;
  ctx.setLineDash([4 * ratio, 4 * ratio]);
  ctx.beginPath();
  ctx.moveTo(at, bbox.top);
  ctx.lineTo(at, bbox.top + bbox.height);
  ctx.stroke();
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  const right = at + ctx.measureText(text).width + 8 * ratio < bbox.left + bbox.width;
  ctx.textAlign = right ? 'left' : 'right';
  ctx.fillText(text, at + (right ? 4 : -4) * ratio, bbox.top + (12 + 14 * row) * ratio);
  ctx.restore();
}
