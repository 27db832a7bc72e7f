// Where a step goes, per rank: one bar of the terms, and beneath it what communication compute hides.

import { absent, h, select } from './dom.js';
import { count, duration, plural, share } from './format.js';
import { canvasPlot, colour, niceStep, rankColour, stripes } from './plot.js';
import { behind } from './table.js';

export const kParts = [
  ['compute_ns', 'compute', 'compute'],
  ['blocked_ns', 'blocked', 'blocked'],
  ['exposed_transfer_ns', 'exposed transfer', 'transfer'],
  ['exposed_wait_ns', 'waiting for other ranks', 'wait'],
  ['exposed_unsplit_ns', 'exposed, not split', 'unsplit'],
  ['exposed_copy_ns', 'exposed copy', 'copy'],
  ['idle_ns', 'idle', 'idle'],
];
const kRows = 32;

export function legend(entries) {
  return h('p', { class: 'legend' }, entries.map(([swatch, text]) => h('span', {}, h('i', { class: 'swatch ' + swatch }), text)));
}

export function ranks(data) {
  const all = data.ranks, n = all.rank.length;
  if (!n) return { show: () => {}, section: [absent('No rank\'s file could be read, so nothing is known of where time went.')] };
  const views = {};
  if (data.mean_step) views.mean = ['the mean step', data.mean_step];
  views.window = ['the whole analysis window', all];
  let view = Object.keys(views)[0], sortBy = 'rank', page = 0, order = [], cursor = null;
  const source = () => views[view][1];
  const sum = (columns, r) => kParts.reduce((total, [key]) => total + columns[key][r], 0);
  const parts = kParts.filter(([key], i) => i < 3 || key === 'idle_ns' || Object.values(views).some(([, columns]) => columns[key].some((ns) => ns > 0)));

  const left = 64, rowHeight = 24;
  let width = 0, span = 1;
  const shown = () => order.slice(page * kRows, (page + 1) * kRows);
  const x = (ns) => left + ns / span * (width - left - 12);
  function draw(g, w, tall) {
    width = w;
    const columns = source();
    span = 1;
    for (let r = 0; r < n; ++r) if (sum(columns, r) > span) span = sum(columns, r);
    const hidden = stripes(g, colour('hidden'), colour('bg'));
    shown().forEach((r, row) => {
      let at = 0;
      const y = row * rowHeight + 3;
      for (const [key, , swatch] of parts) {
        g.fillStyle = colour(swatch);
        g.fillRect(x(at), y, x(at + columns[key][r]) - x(at), 12);
        at += columns[key][r];
      }
      g.fillStyle = hidden;
      const end = columns.compute_ns[r], begin = end - columns.overlap_ns[r];
      g.fillRect(x(begin), y + 13, x(end) - x(begin), 5);
      g.fillStyle = rankColour(data, all.rank[r], cursor === row);
      g.textAlign = 'right';
      g.fillText(`rank ${all.rank[r]}`, left - 6, y + 7);
    });
    g.fillStyle = colour('fg2');
    g.textAlign = 'center';
    const tick = niceStep(span, Math.max(2, (w - left) / 110));
    for (let t = 0; t <= span; t += tick) g.fillText(duration(Math.round(t)), Math.min(x(t), w - 24), tall - 8);
  }
  function tell(row) {
    const r = shown()[row], columns = source();
    if (r === undefined) return null;
    const whole = sum(columns, r);
    return {
      lines: [`rank ${all.rank[r]} · ${all.nodes[all.node[r]]} · ${duration(whole)}`,
        ...parts.filter(([key]) => columns[key][r] > 0).map(([key, title]) => `${title} ${duration(columns[key][r])} (${share(columns[key][r], whole)})`),
        `communication ${duration(columns.comm_ns[r])}, hidden under compute ${duration(columns.overlap_ns[r])}`],
      x: left + 40, y: row * rowHeight + 14,
    };
  }
  const plot = canvasPlot({
    label: 'Bars of where time goes on each rank. Up and down move from rank to rank; the data is in the table below.',
    height: () => Math.min(kRows, n - page * kRows) * rowHeight + 24,
    draw,
    at: (px, py) => {
      const found = tell(Math.floor(py / rowHeight));
      return found && { ...found, x: px, y: py };
    },
    keys: (key) => {
      if (key !== 'ArrowUp' && key !== 'ArrowDown') return false;
      cursor = Math.max(0, Math.min(shown().length - 1, (cursor ?? -1) + (key === 'ArrowDown' ? 1 : -1)));
      plot.redraw();
      return tell(cursor);
    },
  });
  plot.canvas.dataset.plot = 'ranks';
  plot.canvas.addEventListener('blur', () => { cursor = null; plot.redraw(); });

  const pages = h('div', { class: 'pages' });
  function update() {
    const columns = source();
    const value = { rank: (r) => -all.rank[r], wait: (r) => -columns.exposed_wait_ns[r], compute: (r) => columns.compute_ns[r],
      exposed: (r) => columns.exposed_wait_ns[r] + columns.exposed_transfer_ns[r] + columns.exposed_unsplit_ns[r], idle: (r) => columns.idle_ns[r],
      late: (r) => (Number.isNaN(all.late_ns_median[r]) ? -Infinity : all.late_ns_median[r]) }[sortBy];
    order = Array.from({ length: n }, (_, r) => r).filter((r) => !Number.isNaN(columns.compute_ns[r])).sort((a, b) => value(b) - value(a) || a - b);
    if (n > kRows) {
      const turn = (by, text) => h('button', { class: 'small', type: 'button', disabled: page + by < 0 || (page + by) * kRows >= n,
        onclick: () => { page += by; update(); } }, text);
      pages.replaceChildren(turn(-1, 'previous'), ` ${count(page * kRows + 1)} to ${count(Math.min(n, (page + 1) * kRows))} of ${plural(n, 'rank')} `, turn(1, 'next'));
    }
    plot.redraw();
  }
  const [viewControl] = select('Of', Object.entries(views).map(([key, [text]]) => [key, text]), (value) => { view = value; update(); });
  const [sortControl] = select('Ranks by', [['rank', 'number'], ['late', 'how late they arrive'], ['compute', 'most compute'], ['wait', 'least waiting'],
    ['exposed', 'most exposed communication'], ['idle', 'most idle']], (value) => { sortBy = value; page = 0; update(); });
  if (n > kRows) {
    sortBy = 'late';
    sortControl.querySelector('select').value = 'late';
  }
  update();

  const text = (key) => ({ key, title: key.replace(/_ns.*$/, '').replaceAll('_', ' '), numeric: true, value: (r) => all[key][r], text: (r) => duration(all[key][r]) });
  // Turns to a rank's bar and marks it.
  function show(r) {
    const at = order.indexOf(r);
    if (at < 0) return;
    page = Math.floor(at / kRows);
    cursor = at % kRows;
    update();
    plot.canvas.focus({ preventScroll: true });
  }
  const columns = [
    { key: 'rank', title: 'rank', numeric: true, value: (r) => all.rank[r], text: (r) => String(all.rank[r]) },
    { key: 'node', title: 'node', value: (r) => all.nodes[all.node[r]], text: (r) => all.nodes[all.node[r]] },
    text('span_ns'), ...kParts.map(([key]) => text(key)), text('comm_ns'), text('overlap_ns'), text('input_ns'), text('mpi_other_ns'),
    text('late_sender_ns'), text('late_receiver_ns'), text('cpu_ns'), text('offcpu_ns'), text('late_ns_median'),
    { key: 'last', title: 'last', numeric: true, value: (r) => all.last[r], text: (r) => count(all.last[r]) },
  ];
  const step = data.mean_step;
  const stepColumns = step && [columns[0], ...['span_ns', ...kParts.map(([key]) => key), 'comm_ns', 'overlap_ns'].map((key) => (
    { key, title: key.replace(/_ns$/, '').replaceAll('_', ' '), numeric: true, value: (r) => step[key][r], text: (r) => duration(step[key][r]) }))];
  return { show, section: [
    h('div', { class: 'controls' }, viewControl, n > 1 ? sortControl : null),
    legend([...parts.map(([, title, swatch]) => [swatch, title]), ['hidden striped', 'communication hidden under compute']]),
    data.analysis.summary.compute_ns === null
      ? h('p', { class: 'note' }, 'What GPUs did was not recorded: of ranks without it, compute and idle time are not known, and they have no bar.') : null,
    plot.box, pages,
    step ? h('div', {}, h('p', { class: 'dim behind-of' }, 'of the mean step'), behind('ranks-mean-step', stepColumns, n)) : null,
    h('p', { class: 'dim behind-of' }, 'of the whole analysis window'), behind('ranks', columns, n),
  ] };
}

