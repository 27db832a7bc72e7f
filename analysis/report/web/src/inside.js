// What ranks do inside: kernels, operators, ranges and idle time by name; memory and the GPUs' sensors over time.

import { absent, h, name, select } from './dom.js';
import { bytes, count, duration, number, percent, plural } from './format.js';
import { chart } from './chart.js';
import { grid } from './grid.js';
import { colour, niceStep } from './plot.js';
import { behind, csvButton, table } from './table.js';

const kTexts = { text: (text) => text || '(no name)', count, ns: duration, bytes, fraction: percent, number: (v) => number(v), id: String };
const title = (column) => column.name.replace(/_(ns|bytes)$/, '').replaceAll('_', ' ');

// One table of one rank, and beside it what the same names take on another.
function named(one, data) {
  const of = new Map(one.ranks.map((rank) => [rank, one.rows.filter((row) => row[0] === rank)]));
  let rank = one.ranks.find((r) => data.named.includes(r)) ?? one.ranks[0], beside = one.ranks.find((r) => r !== rank && !data.named.includes(r)) ?? null;
  const key = one.columns.findIndex((column) => column.kind === 'text'), total = one.columns.findIndex((column) => column.kind === 'ns');
  const spot = h('div');
  function show() {
    const rows = of.get(rank), other = new Map((of.get(beside) ?? []).map((row) => [row[key], row]));
    const columns = one.columns.map((column, c) => ({ key: column.name, title: title(column), numeric: column.kind !== 'text' && column.kind !== 'id', what: column.what,
      value: (i) => rows[i][c], text: (i) => (rows[i][c] === null ? '-' : kTexts[column.kind](rows[i][c])) })).slice(1)
      .filter((column) => rows.some((_, i) => column.value(i) !== null));
    const at = columns.findIndex((column) => column.key === one.columns[total]?.name);
    if (beside !== null && beside !== rank && key >= 0 && at >= 0) {
      const there = (i) => other.get(rows[i][key])?.[total] ?? null, what = columns[at].title;
      columns[at].title = `${what} of rank ${rank}`;
      columns.splice(at + 1, 0, { key: `${one.columns[total].name}_of_rank_${beside}`, title: `${what} of rank ${beside}`, numeric: true, value: there, text: (i) => (there(i) === null ? '-' : duration(there(i))) });
    }
    spot.replaceChildren(table(columns, rows.length, { label: `${one.name} of rank ${rank}` }), csvButton(`${one.name}-rank-${rank}`, [{ key: 'rank', value: () => rank }, ...columns], rows.length));
  }
  const ranks = one.ranks.map((r) => [r, `rank ${r}`]);
  const [control, list] = select('Of', ranks, (value) => { rank = Number(value); show(); });
  const [besideControl, besideList] = select('beside', [['', 'none'], ...ranks], (value) => { beside = value === '' ? null : Number(value); show(); });
  list.value = rank;
  besideList.value = beside ?? '';
  show();
  return [h('h3', { id: `inside-${one.name}` }, one.title), h('div', { class: 'controls' }, control, one.ranks.length > 1 ? besideControl : null), spot];
}

// Time at a column of a plot, from the begin of what was recorded.
const timeAxis = (data, columns) => (column) => (data.inside.end_ns - data.inside.begin_ns) * column / columns;

function memory(data) {
  const m = data.inside.memory;
  if (!m) return null;
  const kinds = ['gpu', 'host'].filter((where) => m.lines.some((line) => line.where === where)), at = timeAxis(data, m.columns);
  const choices = kinds.flatMap((where) => ['allocated', 'reserved'].filter((what) => m.lines.some((line) => line.where === where && line[what].some((v) => !Number.isNaN(v)))).map((what) =>
    [`${where} ${what}`, `${where === 'gpu' ? 'GPU' : 'host'}, ${what}`]));
  if (!choices.length) return null;
  let [where, what] = choices[0][0].split(' ');
  // Lines of the named ranks and of a few others: more than these are a band, not lines.
  const lines = () => {
    const all = m.lines.filter((line) => line.where === where), first = all.filter((line) => data.named.includes(line.rank)).slice(0, 6);
    return [...first, ...all.filter((line) => !first.includes(line)).slice(0, 8 - first.length)];
  };
  const xs = Array.from({ length: m.columns }, (_, i) => at(i + 0.5) / 1e6);
  const most = () => Math.max(1, ...lines().flatMap((line) => [...line[what]].filter((v) => !Number.isNaN(v))));
  const plot = chart({
    name: 'memory', height: 220,
    label: 'Memory over time, a line for each rank. Left and right move from point to point; the data is in the table below.',
    data: () => [xs, ...lines().map((line) => [...line[what]].map((v) => (Number.isNaN(v) ? null : v)))],
    points: () => lines().flatMap((line) => xs.map((x, i) => ({ x, y: line[what][i], lines: [`rank ${line.rank} · ${bytes(line[what][i])}`, `${duration(Math.round(x * 1e6))} after the begin`] })).filter((p) => !Number.isNaN(p.y))),
    options: () => ({
      cursor: { drag: { x: true, y: false } },
      scales: { x: { time: false }, y: { range: [0, most() * 1.08] } },
      axes: [{ values: (u, splits) => splits.map((v) => duration(Math.round(v * 1e6))) }, { values: (u, splits) => splits.map((v) => bytes(Math.round(v))), size: 72 }],
      series: [{}, ...lines().map((line) => ({ stroke: colour(data.named.includes(line.rank) ? 'wait' : 'point'), width: 1.3, points: { show: false } }))],
    }),
  });
  const [control] = select('Memory', choices, (value) => { [where, what] = value.split(' '); plot.redraw(); });
  const count_ = m.lines.length * m.columns, lineOf = (i) => m.lines[Math.floor(i / m.columns)], cell = (i, key) => lineOf(i)[key][i % m.columns];
  const size = (key) => ({ key: `${key}_bytes`, title: key, numeric: true, value: (i) => cell(i, key), text: (i) => (Number.isNaN(cell(i, key)) ? '-' : bytes(cell(i, key))) });
  return [h('h3', {}, 'Memory'), h('p', { class: 'note' }, `The most within each of ${count(m.columns)} stretches of the run; ${plural(lines().length, 'rank')} drawn, ${data.named.length ? 'those that are named in red, ' : ''}all ${count(new Set(m.lines.map((line) => line.rank)).size)} in the table. A line that rises from step to step is a leak.`),
    choices.length > 1 ? h('div', { class: 'controls' }, control) : null, plot.box,
    behind('memory', [{ key: 'rank', title: 'rank', numeric: true, value: (i) => lineOf(i).rank, text: (i) => String(lineOf(i).rank) }, { key: 'where', title: 'where', value: (i) => lineOf(i).where, text: (i) => lineOf(i).where },
      { key: 'time_ns', title: 'after the begin', numeric: true, value: (i) => Math.round(at(i % m.columns)), text: (i) => duration(Math.round(at(i % m.columns))) }, size('allocated'), size('reserved')], count_)];
}

const kSensors = {
  sm_clock_mhz: ['SM clock', (v) => `${count(Math.round(v))} MHz`, 'the lowest'], utilization_percent: ['utilization', (v) => `${Math.round(v)} %`, 'the mean'],
  power_mw: ['power', (v) => `${number(v / 1000, 3)} W`, 'the highest'], temperature_c: ['temperature', (v) => `${Math.round(v)} °C`, 'the highest'],
};

function sensors(data) {
  const s = data.inside.sensors;
  if (!s) return null;
  const keys = Object.keys(kSensors).filter((key) => s.measures[key]), at = timeAxis(data, s.columns);
  if (!keys.length) return null;
  let key = keys[0];
  const plot = grid({
    id: 'sensors', label: 'What the GPUs\' sensors said: rows are ranks, columns time. Arrow keys move from cell to cell; the data is in the table below.',
    rowNames: s.ranks.map((rank) => `rank ${rank}`), columns: s.columns, values: () => s.measures[key], fromZero: false, red: (row) => data.named.includes(s.ranks[row]),
    text: (v) => kSensors[key][1](v), underTall: 16,
    under: (g, w, top, x) => {
      const span = data.inside.end_ns - data.inside.begin_ns, tick = niceStep(span, Math.max(2, w / 110));
      g.textAlign = 'center';
      for (let t = 0; t <= span; t += tick) g.fillText(duration(Math.round(t)), Math.min(x(t / span * s.columns), w - 24), top + 9);
    },
    lines: (row, column, value) => [`rank ${s.ranks[row]} · ${duration(Math.round(at(column)))} after the begin`, `${kSensors[key][0]} ${Number.isNaN(value) ? 'not read' : kSensors[key][1](value)}`],
  });
  const note = h('p', { class: 'note' });
  const describe = () => (note.textContent = `${kSensors[key][2][0].toUpperCase()}${kSensors[key][2].slice(1)} within each stretch of ${duration(Math.round(at(1)))}.` +
    (s.ranks.length < data.inside.all_ranks ? ` ${count(s.ranks.length)} of ${plural(data.inside.all_ranks, 'rank')}.` : '') + (key === 'sm_clock_mhz' ? ' A dark row is a GPU that is throttled or set lower.' : ''));
  const [control] = select('Sensor', keys.map((one) => [one, kSensors[one][0]]), (value) => { key = value; describe(); plot.redraw(); });
  describe();
  const row = (i) => Math.floor(i / s.columns);
  return [h('h3', {}, 'GPU clocks and utilization'), h('div', { class: 'controls' }, control), note, plot.box,
    behind('sensors', [{ key: 'rank', title: 'rank', numeric: true, value: (i) => s.ranks[row(i)], text: (i) => String(s.ranks[row(i)]) },
      { key: 'time_ns', title: 'after the begin', numeric: true, value: (i) => Math.round(at(i % s.columns)), text: (i) => duration(Math.round(at(i % s.columns))) },
      ...keys.map((one) => ({ key: one, title: kSensors[one][0], numeric: true, value: (i) => s.measures[one][i], text: (i) => (Number.isNaN(s.measures[one][i]) ? '-' : kSensors[one][1](s.measures[one][i])) }))],
    s.ranks.length * s.columns)];
}

export function inside(data) {
  const { inside: all } = data;
  if (!all || !(all.tables.length || all.memory || all.sensors)) {
    return [absent('Nothing was recorded of what ranks do inside: neither kernels nor operators, ranges, memory or sensors of GPUs. PyTorch programs, GPU programs and programs that mark ranges have them.')];
  }
  const missing = ['kernels', 'ops'].filter((one) => !all.tables.some((each) => each.name === one)).map((one) => ({ kernels: 'no GPU kernels', ops: 'no operators (lockstep run --torch-ops, or a trace that has them)' })[one]);
  return [
    all.tables.length ? h('p', { class: 'note' }, 'By name, the first rows of at most four ranks' + (all.all_ranks > 4 ? ' (those that are named, others evenly spread)' : '') + '; ',
      'all ranks and rows: ', h('code', {}, 'lockstep analyze RUN --table NAME'), '.', missing.length ? [' Not recorded: ', name(missing.join(', ')), '.'] : '') : null,
    all.tables.map((one) => named(one, data)), memory(data), sensors(data)];
}
