// How long steps were: how many of each length.

import { h } from './dom.js';
import { count, duration, mark, plural } from './format.js';
import { quantile } from './data.js';
import { canvasPlot, colour, niceStep } from './plot.js';
import { behind } from './table.js';

export function stepLengths(data, openStep) {
  const lengths = data.step_lengths;
  if (!lengths || lengths.step_ns.length < 5) return null;
  const { index, step_ns: values } = lengths, n = values.length;
  // A few steps far from all others would press these into one bar: they share one at the end, and it says so.
  const [p1, p99] = [quantile(values, 0.01), quantile(values, 0.99)], beyond = Math.max(p99 - p1, p99 * 0.001);
  let low = Infinity, high = -Infinity, shortest = Infinity, longest = -Infinity;
  for (const value of values) {
    [shortest, longest] = [Math.min(shortest, value), Math.max(longest, value)];
    if (value >= p1 - beyond) low = Math.min(low, value);
    if (value <= p99 + beyond) high = Math.max(high, value);
  }
  const width0 = Math.max(1, niceStep(Math.max(high - low, 1), Math.min(60, Math.max(12, Math.ceil(2 * Math.sqrt(n)))))), begin = Math.floor(low / width0) * width0;
  const before = shortest < begin ? 1 : 0, first = begin - before * width0;
  const inside = Math.floor((high - begin) / width0) + 1, after = longest >= begin + inside * width0 ? 1 : 0;
  const bins = before + inside + after, counts = new Array(bins).fill(0), examples = new Array(bins).fill(null);
  for (let i = 0; i < n; ++i) {
    const bin = Math.max(0, Math.min(bins - 1, Math.floor((values[i] - first) / width0)));
    ++counts[bin];
    examples[bin] ??= index[i];
  }
  const isEnd = (bin) => (before && bin === 0) || (after && bin === bins - 1);
  const most = Math.max(...counts), marks = [['p10', 0.1, 10], ['median', 0.5, 1], ['p99', 0.99, 100]].filter(([, , least]) => n >= least).map(([text, p]) => [text, quantile(values, p)]);
  const left = 72, tall0 = 150;
  let width = 0, cursor = null;
  const x = (ns) => left + (ns - first) / (bins * width0) * (width - left - 8);
  // One step of thousands is seen, too.
  const tallOf = (bin) => (counts[bin] ? Math.max(3, counts[bin] / most * (tall0 - 34)) : 0);
  const tell = (bin) => (bin < 0 || bin >= bins ? null : { lines: [before && bin === 0 ? `shorter than ${duration(begin)}, down to ${duration(shortest)}` : after && bin === bins - 1 ? `longer than ${duration(begin + inside * width0)}, up to ${duration(longest)}` : `${duration(first + bin * width0)} to ${duration(first + (bin + 1) * width0)}`, `${plural(counts[bin], 'step')} of ${count(n)}`,
    ...(counts[bin] ? [`the first: step ${examples[bin]}`] : [])], x: x(first + (bin + 0.5) * width0), y: tall0 - 24 - tallOf(bin) });
  const plot = canvasPlot({
    label: 'Histogram of step lengths. Left and right move from bar to bar, Enter opens its first step in the timeline; the data is in the table below.',
    height: () => tall0,
    draw: (g, w, tall) => {
      width = w;
      for (let bin = 0; bin < bins; ++bin) {
        g.fillStyle = colour(bin === cursor ? 'fg' : isEnd(bin) ? 'wait' : 'compute');
        const from = x(first + bin * width0);
        g.fillRect(from, tall - 22 - tallOf(bin), Math.max(1, x(first + (bin + 1) * width0) - from - 1), tallOf(bin));
      }
      g.fillStyle = colour('fg2');
      g.textAlign = 'right';
      g.fillText(plural(most, 'step'), left - 8, 16);
      g.fillText('0', left - 8, tall - 24);
      g.textAlign = 'center';
      const tick = niceStep(bins * width0, Math.max(2, (w - left) / 110));
      for (let t = Math.ceil(begin / tick) * tick; t <= begin + inside * width0; t += tick) g.fillText(mark(t, tick), Math.min(x(t), w - 24), tall - 8);
      // Words that would lie on each other go to the next line.
      let end = -1, line = 0;
      for (const [text, ns] of marks) {
        line = x(ns) < end ? line + 1 : 0;
        g.fillStyle = colour('fg2');
        g.fillRect(x(ns), 2, 1, tall - 24);
        const wide = g.measureText(text).width, right = x(ns) + 4 + wide < w;
        g.textAlign = right ? 'left' : 'right';
        g.fillText(text, x(ns) + (right ? 3 : -3), 8 + 11 * line);
        end = Math.max(end, x(ns) + wide + 8);
      }
    },
    at: (px) => tell(Math.floor((px - left) / (width - left - 8) * bins)),
    pressed: (px) => {
      const bin = Math.floor((px - left) / (width - left - 8) * bins);
      if (counts[bin]) openStep(examples[bin]);
    },
    keys: (key) => {
      if (key === 'Enter' && cursor !== null && counts[cursor]) return openStep(examples[cursor]), true;
      if (key !== 'ArrowLeft' && key !== 'ArrowRight') return false;
      cursor = Math.max(0, Math.min(bins - 1, (cursor ?? -1) + (key === 'ArrowRight' ? 1 : -1)));
      plot.redraw();
      return tell(cursor);
    },
  });
  plot.canvas.dataset.plot = 'step-lengths';
  plot.canvas.addEventListener('blur', () => { cursor = null; plot.redraw(); });
  return [h('h3', {}, 'How long steps were'), h('p', { class: 'note' }, `${plural(n, 'step')}, warm-up and incomplete ones left out. Two hills are two kinds of steps; a bar far to the right is a step that something held up.` + (before || after ? ` Red: ${[before ? plural(counts[0], 'step') + ` down to ${duration(shortest)}` : '', after ? plural(counts[bins - 1], 'step') + ` up to ${duration(longest)}` : ''].filter(Boolean).join(' and ')}, not to scale.` : '')), plot.box,
    behind('step-lengths', [{ key: 'step', title: 'step', numeric: true, value: (i) => index[i], text: (i) => String(index[i]) },
      { key: 'step_ns', title: 'length', numeric: true, value: (i) => values[i], text: (i) => duration(values[i]) }], n)];
}
