// Who is last, in what, where in the step, and what is different on that rank.

import { absent, h, name, select } from './dom.js';
import { bytes, change, count, duration, interval, number, percent, plural } from './format.js';
import { flames } from './flames.js';
import { canvasPlot, colour, niceStep, rankColour } from './plot.js';
import { behind, csvButton, scrolling, table } from './table.js';

const kCauses = {
  starved: 'it was ready to run but had no core', input: 'it waits for input', clock: 'its GPU\'s clock is lower', compute: 'it computes longer',
  waiting: 'it leaves the CPU by itself', unknown: 'cause unknown',
};

// "file, fsync: checkpoint.pt (save, train.py:40)".
function blockedIn(b) {
  const last = (path) => path.slice(path.lastIndexOf('/') + 1), line = b.file ? last(b.file) + (b.line ? `:${b.line}` : '') : b.module ? last(b.module) : '';
  const place = [b.function, line].filter(Boolean).join(', ');
  return `${b.kind}, ${b.call}${b.detail ? `: ${last(b.detail)}` : ''}${place ? ` (${place})` : ''}`;
}

function cards(data) {
  const { stragglers } = data.analysis;
  if (!stragglers.length) {
    const why = data.ranks.rank.length < 2 ? 'The run has one rank, so no other rank waits for it.'
      : data.analysis.skipped.some((text) => text.startsWith('stragglers')) ? 'Ranks could not be compared: that takes two ranks and two steps, or enough collectives to slice the run.'
        : 'No rank is named: no rank is late by at least 2 % of the step and more consistently than chance explains (p < 0.01).';
    return absent(why);
  }
  return h('div', { class: 'cards' }, stragglers.map((s) => h('div', { class: 'card' },
    h('h3', {}, `rank ${s.rank}`, ' ', h('span', { class: 'kind' }, name(s.kind)), s.onset_step !== null ? ` from step ${s.onset_step} on` : ''),
    h('p', {}, kCauses[s.cause] ?? name(s.cause), s.gpu ? ` (${s.gpu.sm_clock_mhz} MHz, others ${s.gpu.others_sm_clock_mhz ?? 'unknown'})` : '',
      s.blocked ? [': ', name(blockedIn(s.blocked)), `, ${duration(s.blocked.ns_per_step)} in a step, the others ${duration(s.blocked.others_ns_per_step)}`] : ''),
    h('dl', {}, ...[
      ['price', s.price_ns_per_step === null ? 'unknown per step'
        : s.priced_by === 'replay' ? `a step would be ${s.price_ns_per_step > 0 ? `${duration(s.price_ns_per_step)} shorter` : 'as long'} without what slows it (replayed)`
          : `the others wait ${duration(s.price_ns_per_step)} per step (${interval(s.saves_interval_ns?.[0], s.saves_interval_ns?.[1])})`],
      ['its work against the others\'', `${change(Math.expm1(s.score))} (${interval(s.interval?.[0], s.interval?.[1], (v) => change(Math.expm1(v)))})`],
      ['chance', s.p_value < 0.001 ? 'p < 0.001' : `p = ${number(s.p_value, 2)}`],
    ].flatMap(([term, text]) => [h('dt', {}, term), h('dd', {}, text)])))));
}

// Work relative to the median rank, with its interval.
function scores(data) {
  const all = data.ranks, kRows = 40;
  let order = all.rank.length ? [...all.rank.keys()].filter((r) => all.straggler_score[r] !== null) : [];
  if (!order.length) return absent('Work of ranks is not compared: that takes two ranks and two complete steps.');
  if (order.length > kRows) order = order.sort((a, b) => Math.abs(all.straggler_score[b]) - Math.abs(all.straggler_score[a])).slice(0, kRows).sort((a, b) => a - b);
  // The scores are logarithms; shown is how much more work that is.
  const more = (value) => Math.expm1(value ?? 0);
  const low = Math.min(-0.01, ...order.map((r) => more(all.score_low[r]))), high = Math.max(0.01, ...order.map((r) => more(all.score_high[r])));
  const left = 64, rowHeight = 15;
  let width = 0, cursor = null;
  const x = (v) => left + 8 + (v - low) / (high - low) * (width - left - 24), at = (score) => x(more(score));
  const named = new Set(data.analysis.stragglers.map((s) => s.rank));
  const tell = (row) => {
    const r = order[row];
    return r === undefined ? null : { lines: [`rank ${all.rank[r]}: work ${change(Math.expm1(all.straggler_score[r]))} against the median rank`,
      interval(all.score_low[r], all.score_high[r], (v) => percent(Math.expm1(v)))], x: at(all.straggler_score[r]), y: row * rowHeight + 8 };
  };
  const plot = canvasPlot({
    label: 'Each rank\'s work against the median rank\'s, with 95 % interval. Up and down move from rank to rank.',
    height: () => order.length * rowHeight + 26,
    draw: (g, w, tall) => {
      width = w;
      g.textAlign = 'center';
      const tick = niceStep(high - low, Math.max(2, w / 110));
      for (let v = Math.ceil(low / tick) * tick; v <= high; v += tick) {
        g.fillStyle = colour('line');
        g.fillRect(x(v), 0, 1, tall - 20);
        g.fillStyle = colour('fg2');
        g.fillText(percent(Math.abs(v) < tick / 2 ? 0 : v), x(v), tall - 8);
      }
      order.forEach((r, row) => {
        const y = row * rowHeight + 8;
        g.fillStyle = rankColour(data, all.rank[r], row === cursor);
        g.textAlign = 'right';
        g.fillText(`rank ${all.rank[r]}`, left - 6, y);
        g.strokeStyle = g.fillStyle = colour(named.has(all.rank[r]) ? 'wait' : 'point');
        g.lineWidth = 1.5;
        g.beginPath();
        g.moveTo(at(all.score_low[r] ?? all.straggler_score[r]), y);
        g.lineTo(at(all.score_high[r] ?? all.straggler_score[r]), y);
        g.stroke();
        g.beginPath();
        g.arc(at(all.straggler_score[r]), y, 3.5, 0, 7);
        g.fill();
      });
    },
    at: (px, py) => tell(Math.floor(py / rowHeight)),
    keys: (key) => {
      if (key !== 'ArrowUp' && key !== 'ArrowDown') return false;
      cursor = Math.max(0, Math.min(order.length - 1, (cursor ?? -1) + (key === 'ArrowDown' ? 1 : -1)));
      plot.redraw();
      return tell(cursor);
    },
  });
  plot.canvas.dataset.plot = 'scores';
  plot.canvas.addEventListener('blur', () => { cursor = null; plot.redraw(); });
  const column = (key, title, text) => ({ key, title, numeric: true, value: (r) => all[key][r], text: (r) => (all[key][r] === null || Number.isNaN(all[key][r]) ? '-' : text(all[key][r])) });
  const ratio = (v) => percent(Math.expm1(v));
  return [h('h3', {}, 'Work of each rank against the median rank'),
    order.length < all.rank.length ? h('p', { class: 'note' }, `The ${order.length} furthest from the others of ${count(all.rank.length)}.`) : null, plot.box,
    behind('scores', [column('rank', 'rank', String), column('straggler_score', 'work', ratio), column('score_low', 'low', ratio), column('score_high', 'high', ratio),
      column('last', 'last', count), column('ties', 'ties', count), column('charge_ns', 'held others up', duration), column('last_fraction', 'last, share', percent),
      column('late_ns_median', 'late', duration)], all.rank.length, { sortBy: 'charge_ns' })];
}

function matrix(caption, ranks, heads, cells, measure, of) {
  const values = cells[measure], most = Math.max(1, ...values), text = measure === 'last' ? count : duration;
  return scrolling(caption, h('table', { class: 'matrix' }, h('caption', {}, caption),
    h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'last'), heads.map((head) => h('th', { class: 'n', scope: 'col' }, head)))),
    h('tbody', {}, ranks.map((rank, i) => h('tr', {}, h('th', { scope: 'row' }, `rank ${rank}`), heads.map((_, k) => {
      const value = values[i * heads.length + k], cell = h('td', { class: 'n' }, value ? text(value) : '·');
      cell.title = `rank ${rank} was last ${plural(cells.last[i * heads.length + k], 'time')} ${of(k)}, the others waited ${duration(cells.charge_ns[i * heads.length + k])} longer for it in all`;
      if (value) {
        cell.style.background = `color-mix(in srgb, var(--wait) ${Math.round(12 + 68 * value / most)}%, transparent)`;
      }
      return cell;
    }))))));
}

export function stragglers(data) {
  const { analysis, attribution: a } = data;
  const parts = [cards(data), ...flames(data)].concat(data.ranks.rank.length > 1 ? scores(data) : []);
  if (!a) {
    if (data.ranks.rank.length > 1) parts.push(absent('The last rank is unknown: the clocks cannot resolve the last arrival of any collective.'));
  } else {
    const spot = h('div'), kinds = a.kinds.map((kind) => `${kind.op} ${bytes(kind.bytes)}`);
    const tenths = Array.from({ length: 10 }, (_, i) => `${i * 10} %`);
    const show = (measure) => spot.replaceChildren(
      matrix('by collective', a.ranks, kinds, a.by_kind, measure, (k) => `in ${kinds[k]}`),
      a.tenths ? matrix('by where in the step it arrives', a.ranks, tenths, a.tenths, measure, (k) => `${tenths[k]} to ${10 * k + 10} % into the step`)
        : absent('By where in the step: not known, the run has no steps.'));
    const [control] = select('Show', [['last', 'how often it was last'], ['charge_ns', 'how much longer others waited']], show);
    show('last');
    const cell = (i) => [Math.floor(i / a.kinds.length), i % a.kinds.length];
    parts.push(h('h3', {}, 'Who is last, in what, and when'), h('div', { class: 'controls' }, control), spot,
      a.ranks_left_out || a.kinds_left_out ? h('p', { class: 'note' }, 'The costliest: ', a.ranks_left_out ? `${plural(a.ranks_left_out, 'rank')} more` : '', a.ranks_left_out && a.kinds_left_out ? ' and ' : '', a.kinds_left_out ? `${plural(a.kinds_left_out, 'kind')} more` : '', ' left out.') : null,
      csvButton('last-arrivers', [{ key: 'rank', value: (i) => a.ranks[cell(i)[0]] }, { key: 'op', value: (i) => a.kinds[cell(i)[1]].op }, { key: 'bytes', value: (i) => a.kinds[cell(i)[1]].bytes },
        { key: 'members', value: (i) => a.kinds[cell(i)[1]].members }, { key: 'last', value: (i) => a.by_kind.last[i] }, { key: 'charge_ns', value: (i) => a.by_kind.charge_ns[i] }], a.ranks.length * a.kinds.length));
  }
  const rankText = (rank) => (rank === null ? 'between ranks' : String(rank));
  if (analysis.critical_path.length) {
    const rows = analysis.critical_path;
    parts.push(h('h3', {}, 'What a step waits for, along the critical path across ranks'), table([
      { key: 'rank', title: 'rank', value: (i) => rows[i].rank, text: (i) => rankText(rows[i].rank) },
      { key: 'what', title: 'what', value: (i) => rows[i].what, text: (i) => rows[i].what },
      { key: 'ns', title: 'per step', numeric: true, value: (i) => rows[i].ns, text: (i) => duration(rows[i].ns) }], rows.length),
    csvButton('critical-path', ['rank', 'what', 'ns'].map((key) => ({ key, value: (i) => rows[i][key] })), rows.length));
  }
  if (analysis.delays.length) {
    const rows = analysis.delays;
    const column = (key, title) => ({ key, title, numeric: true, value: (i) => rows[i][key], text: (i) => duration(rows[i][key]) });
    parts.push(h('h3', {}, 'Where delays begin'), h('p', { class: 'note' }, 'Work beyond the others\' and the waiting of all ranks together that it causes per step, at the next synchronisation or, passed on, later.'), table([
      { key: 'rank', title: 'rank', numeric: true, value: (i) => rows[i].rank, text: (i) => String(rows[i].rank) },
      { key: 'where', title: 'in', value: (i) => rows[i].where, text: (i) => rows[i].where ?? '(no range)' },
      column('short_term_ns', 'waiting at once'), column('long_term_ns', 'waiting later')], rows.length, { sortBy: 'short_term_ns' }),
    csvButton('delays', ['rank', 'where', 'short_term_ns', 'long_term_ns'].map((key) => ({ key, value: (i) => rows[i][key] })), rows.length));
  }
  return parts;
}
