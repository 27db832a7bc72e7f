// Who waits for whom.

import { h, select } from './dom.js';
import { count, duration, plural } from './format.js';
import { grid } from './grid.js';
import { niceStep } from './plot.js';
import { behind } from './table.js';

export function waits(data) {
  const w = data.waits;
  if (!w) return null;
  const columns = w.waiting.length, shared = w.ranks_per_column > 1, named = new Set(data.named);
  const kinds = [['collective_ns', 'in collectives, for the last rank'], ['message_ns', 'for messages']].filter(([key]) => w[key].some((ns) => ns > 0));
  let kind = kinds[0][0];
  const waiting = (column) => (shared ? `ranks ${w.waiting[column]} and ${w.ranks_per_column - 1} more` : `rank ${w.waiting[column]}`);
  const plot = grid({
    id: 'waits', label: 'Who waits for whom: rows are the ranks that are waited for, columns those that wait. Arrow keys move from cell to cell; the data is in the table below.',
    rowNames: w.awaited.map((rank) => `rank ${rank}`), columns, values: () => w[kind], red: (row) => named.has(w.awaited[row]), underTall: 16,
    under: (g, wide, top, x) => {
      g.textAlign = 'center';
      const every = Math.max(1, Math.round(niceStep(columns, (wide - 80) / 60)));
      for (let column = 0; column < columns; column += every) g.fillText(w.waiting[column], (x(column) + x(column + 1)) / 2, top + 9);
    },
    lines: (row, column, value) => (w.awaited[row] === w.waiting[column] && !shared ? [`rank ${w.awaited[row]} itself`]
      : [`${waiting(column)} ${shared ? 'wait' : 'waits'} for rank ${w.awaited[row]}`, `${duration(value)} in all${shared ? ', the longest of them' : ''}`]),
  });
  const [control] = select('Waiting', kinds, (value) => { kind = value; plot.redraw(); });
  const row = (i) => Math.floor(i / columns), column = (i) => i % columns;
  return [h('h3', {}, 'Who waits for whom'),
    h('p', { class: 'note' }, 'Rows: ranks that are waited for, columns: ranks that wait, whether or not compute hides it; warm-up steps included. Of several ranks that are late together each has an equal part of the time until the first of them comes. A bright row is a rank that all wait for, a bright block a group that waits for itself.' +
      (w.awaited.length < w.awaited_ranks ? ` The ${count(w.awaited.length)} that are waited for most, of ${count(w.awaited_ranks)}.` : '') +
      (shared ? ` ${count(w.ranks_per_column)} ranks share a column, which shows the longest.` : '') +
      (w.untold_ns ? ` Not in it: ${duration(w.untold_ns)} in collectives for which the clocks, or missing ranks, cannot tell who was late.` : '')),
    kinds.length > 1 ? h('div', { class: 'controls' }, control) : null, plot.box,
    behind('waits', [{ key: 'awaited_rank', title: 'waited for', numeric: true, value: (i) => w.awaited[row(i)], text: (i) => String(w.awaited[row(i)]) },
      { key: 'waiting_rank', title: 'waits', numeric: true, value: (i) => w.waiting[column(i)], text: (i) => String(w.waiting[column(i)]) },
      ...['collective_ns', 'message_ns'].map((key) => ({ key, title: key === 'collective_ns' ? 'in collectives' : 'for messages', numeric: true, value: (i) => w[key][i], text: (i) => duration(w[key][i]) }))],
    w.awaited.length * columns, { sortBy: kind })];
}
