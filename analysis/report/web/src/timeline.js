// One step, all ranks. Per rank: ranges of the program, compute, and communication, where waiting that costs time is
// solid and what compute hides is striped and pale.

import { absent, code, h, name } from './dom.js';
import { bandwidth, bytes, count, duration, mark, plural } from './format.js';
import { canvasPlot, colour, drawNew, niceStep, rankColour, stripes } from './plot.js';
import { legend } from './ranks.js';
import { behind, csvButton } from './table.js';

// As analysis/report/html/lane_pieces.h numbers them: [words, in the upper lane, in the lower lane].
const kStates = [
  ['compute', 'compute', null],
  ['compute; a transfer is hidden beneath it', 'compute', 'hidden-transfer'],
  ['compute; waiting for another rank is hidden beneath it', 'compute', 'hidden-wait'],
  ['compute; communication is hidden beneath it', 'compute', 'hidden-unsplit'],
  ['compute; communication is posted, nothing shows that it moves', 'compute', 'posted'],
  ['exposed transfer', null, 'transfer'],
  ['waiting for another rank', null, 'wait'],
  ['exposed communication, unsplit (waiting or transfer)', null, 'unsplit'],
  ['copy', 'copy', null],
  ['idle', null, null],
  ['input', 'input', null],
  ['blocked', 'blocked', null],
  ['blocked; a transfer is hidden beneath it', 'blocked', 'hidden-transfer'],
  ['blocked; waiting for another rank is hidden beneath it', 'blocked', 'hidden-wait'],
  ['blocked; communication is hidden beneath it', 'blocked', 'hidden-unsplit'],
  ['blocked; communication is posted, nothing shows that it moves', 'blocked', 'posted'],
];
const kLeft = 64;

function indexCells(lanes) {
  const c = lanes.columns, cells = [];
  let piece = 0, op = 0, range = 0, call = 0;
  for (let i = 0; i < lanes.steps.length * lanes.ranks.length; ++i) {
    cells.push({ begin: c.cell_begin[i], end: c.cell_end[i], coarse: c.cell_coarse[i], left: c.cell_ops_left_out[i],
      piece, pieces: c.cell_pieces[i], op, ops: c.cell_ops[i], range, ranges: c.cell_ranges[i],
      call, calls: c.cell_blocked[i] });
    piece += c.cell_pieces[i];
    op += c.cell_ops[i];
    range += c.cell_ranges[i];
    call += c.cell_blocked[i];
  }
  return cells;
}

// With another step below or beside it, where asked for.
export function timeline(data) {
  const first = oneStep(data, ''), { lanes } = data;
  if (!lanes || lanes.steps.length < 2) return first;
  const spot = h('div', { class: 'steps' }, h('div', {}, first.section));
  const button = h('button', { type: 'button', class: 'small', id: 'timeline-beside', 'aria-expanded': 'false', onclick: () => {
    if (spot.children.length > 1) {
      spot.lastChild.remove();
      spot.classList.remove('two-steps');
    } else {
      // The longest beside the one that is shown, or another one.
      const longest = lanes.steps.findIndex((one) => one.why === 'worst'), other = oneStep(data, '-2', longest === first.shown() || longest < 0 ? (first.shown() + 1) % lanes.steps.length : longest);
      spot.append(h('div', {}, other.section));
      spot.classList.add('two-steps');
      drawNew();
    }
    button.textContent = spot.children.length > 1 ? 'one step only' : 'a second step beside it';
    button.setAttribute('aria-expanded', String(spot.children.length > 1));
  } }, 'a second step beside it');
  return { section: [h('div', { class: 'controls' }, button), spot], open: first.open };
}

// Of ids: `suffix` tells them apart.
function oneStep(data, suffix, begin) {
  const { lanes } = data;
  if (!lanes) return { section: [absent('Nothing to draw: the run has neither steps nor a window in which ranks recorded something.')], open: () => {}, shown: () => 0 };
  const c = { op_begin: [], range_begin: [], blocked_begin: [], ...lanes.columns }, cells = indexCells(lanes), R = lanes.ranks.length;
  let s = begin ?? Math.max(0, lanes.steps.findIndex((step) => step.why === 'median')), view = [0, 1], cursor = null, width = 0;
  const step = () => lanes.steps[s], cell = (r) => cells[s * R + r];
  const unit = lanes.slices ? 'slice' : 'step';
  const length = () => Math.max(1, step().length_ns);

  const depths = Math.min(2, c.range_depth ? 1 + c.range_depth.reduce((most, d) => Math.max(most, d), -1) : 0);
  const small = R > 16, rangeHeight = small || !depths ? 0 : 11, laneHeight = small ? 6 : 9;
  const rowHeight = rangeHeight * depths + 2 * laneHeight + (small ? 4 : 8);
  const x = (t) => kLeft + (t - view[0]) / (view[1] - view[0]) * (width - kLeft - 8);
  const time = (px) => view[0] + (px - kLeft) / (width - kLeft - 8) * (view[1] - view[0]);

  function paints(g) {
    const pale = (key) => stripes(g, colour(key), colour('stripe'));
    return { compute: colour('compute'), blocked: colour('blocked'), copy: colour('copy'), input: colour('input'), transfer: colour('transfer'), wait: colour('wait'), unsplit: colour('unsplit'),
      posted: colour('posted'), 'hidden-transfer': pale('hidden-transfer'), 'hidden-wait': pale('hidden-wait'), 'hidden-unsplit': pale('hidden-unsplit') };
  }
  function draw(g, w, tall) {
    width = w;
    const paint = paints(g), bottom = tall - 22;
    g.save();
    g.beginPath();
    g.rect(kLeft, 0, w - kLeft - 8, bottom);
    g.clip();
    const tick = niceStep(view[1] - view[0], Math.max(2, (w - kLeft) / 110));
    g.fillStyle = colour('line');
    for (let t = Math.ceil(view[0] / tick) * tick; t <= view[1]; t += tick) g.fillRect(x(t), 0, 1, bottom);
    for (let r = 0; r < R; ++r) drawRow(g, paint, r, r * rowHeight + 2);
    g.restore();
    g.textAlign = 'right';
    for (let r = 0; r < R; ++r) {
      g.fillStyle = rankColour(data, lanes.ranks[r], cursor?.row === r);
      g.fillText(`rank ${lanes.ranks[r]}`, kLeft - 6, r * rowHeight + rowHeight / 2);
    }
    g.fillStyle = colour('fg2');
    g.textAlign = 'center';
    for (let t = Math.ceil(view[0] / tick) * tick; t <= view[1]; t += tick) if (x(t) < w - 20) g.fillText(mark(t, tick), x(t), tall - 10);
    if (drag) {
      g.fillStyle = colour('band');
      g.fillRect(Math.min(drag[0], drag[1]), 0, Math.abs(drag[1] - drag[0]), bottom);
    }
  }
  function drawRow(g, paint, r, y) {
    const one = cell(r);
    if (Number.isNaN(one.begin)) {
      g.fillStyle = colour('fg2');
      g.textAlign = 'left';
      g.fillText(lanes.unread.some((u) => u.rank === lanes.ranks[r]) ? 'its file could not be read' : `did not record this ${unit}`, kLeft + 6, y + rowHeight / 2 - 2);
      return;
    }
    for (let i = one.range; rangeHeight && i < one.range + one.ranges; ++i) {
      if (c.range_depth[i] >= depths) continue;
      const left = Math.max(kLeft - 1, x(c.range_begin[i])), right = x(c.range_begin[i] + c.range_ns[i]);
      if (right < kLeft || left > width) continue;
      const top = y + c.range_depth[i] * rangeHeight;
      g.fillStyle = colour(c.range_category[i] === 1 ? 'input' : 'range');
      g.fillRect(left, top, Math.max(1, right - left - 1), rangeHeight - 1);
      if (right - left < 36) continue;
      g.save();
      g.beginPath();
      g.rect(left, top, right - left - 3, rangeHeight);
      g.clip();
      g.fillStyle = colour('fg');
      g.textAlign = 'left';
      g.font = '9px system-ui, sans-serif';
      g.fillText(lanes.names[c.range_name[i]], left + 3, top + rangeHeight / 2);
      g.restore();
    }
    const upper = y + rangeHeight * depths, lower = upper + laneHeight;
    let at = one.begin;
    for (let i = one.piece; i < one.piece + one.pieces; ++i) {
      const end = at + c.piece_ns[i], [, above, below] = kStates[c.piece_state[i]];
      if (end >= view[0] && at <= view[1]) {
        const left = x(Math.max(at, view[0])), wide = Math.max(0.6, x(Math.min(end, view[1])) - left);
        if (above) {
          g.fillStyle = paint[above];
          g.fillRect(left, upper, wide, laneHeight - 1);
        }
        if (below) {
          g.fillStyle = paint[below];
          if (below === 'posted') g.fillRect(left, lower + laneHeight / 2 - 1, wide, 1.5);
          else g.fillRect(left, lower, wide, laneHeight);
        }
      }
      at = end;
    }
    // Where operations begin; a mark below the one that all others waited for.
    for (let i = one.op; i < one.op + one.ops; ++i) {
      const left = x(c.op_begin[i]);
      if (left < kLeft || left > width || x(c.op_begin[i] + c.op_ns[i]) - left < 4) continue;
      g.fillStyle = colour('bg');
      g.fillRect(left, lower, 1, laneHeight);
      if (c.op_last_rank[i] !== lanes.ranks[r] || small) continue;
      g.fillStyle = colour('fg');
      g.beginPath();
      g.moveTo(left - 3, lower + laneHeight + 5);
      g.lineTo(left + 3, lower + laneHeight + 5);
      g.lineTo(left, lower + laneHeight);
      g.fill();
    }
    if (cursor?.row === r) {
      g.fillStyle = colour('fg');
      g.fillRect(x(cursor.t), y, 1, rowHeight - 3);
    }
  }

  function opLines(i) {
    const kind = lanes.kinds[c.op_kind[i]], transfer = c.op_transfer_ns[i], split = c.op_wait_ns[i] > 0 || transfer > 0;
    const lines = [`${kind.op}${kind.bytes === null ? '' : ' of ' + bytes(kind.bytes)} among ${kind.members || 'unknown'}${kind.group ? ` (${kind.group})` : ''}, ${duration(c.op_ns[i])}`];
    if (split) {
      const speed = transfer > 0 && kind.bytes > 0 && c.op_sharers[i] <= 1 ? kind.bytes * 1e9 / transfer : null;
      lines.push(`waits ${duration(c.op_wait_ns[i])}, transfers ${transfer > 0 ? duration(transfer) : 'an uncertain time'}` +
        (speed ? `: ${bandwidth(speed)}, bus ${bandwidth(speed * kind.bus_factor)}` : ''));
    } else lines.push('unsplit: waiting or transfer');
    if (!c.op_certain[i]) lines.push('non-blocking: it moves only while the program is inside MPI');
    if (c.op_sharers[i] > 1) lines.push(`shares its kernel with ${plural(c.op_sharers[i] - 1, 'other')}`);
    if (!Number.isNaN(c.op_last_rank[i])) lines.push(`last to arrive: rank ${c.op_last_rank[i]}, ${duration(c.op_charge_ns[i])} after the one before`);
    else if (!Number.isNaN(c.op_error_ns[i])) lines.push('which rank was last is below clock resolution');
    if (!Number.isNaN(c.op_error_ns[i])) lines.push(`clock error ± ${duration(c.op_error_ns[i])}`);
    return lines;
  }
  function tell(row, t, y) {
    if (row < 0 || row >= R || t < view[0] || t > view[1]) return null;
    const one = cell(row), lines = [`rank ${lanes.ranks[row]} · ${duration(Math.round(t))} into the ${unit}`];
    if (Number.isNaN(one.begin) || t < one.begin || t > one.end) lines.push(`outside of its ${unit}`);
    else {
      let at = one.begin, i = one.piece;
      while (i < one.piece + one.pieces - 1 && at + c.piece_ns[i] <= t) at += c.piece_ns[i++];
      if (one.pieces) lines.push(`${kStates[c.piece_state[i]][0]}, ${duration(c.piece_ns[i])}` + (one.coarse ? ' (drawn coarser than recorded)' : ''));
      const open = [];
      for (let k = one.op; k < one.op + one.ops; ++k) if (c.op_begin[k] <= t && t < c.op_begin[k] + c.op_ns[k]) open.push(k);
      for (const k of open.slice(-2)) lines.push(...opLines(k));
      if (open.length > 2) lines.push(`and ${plural(open.length - 2, 'operation')} more`);
      for (let k = one.range; k < one.range + one.ranges; ++k)
        if (c.range_begin[k] <= t && t < c.range_begin[k] + c.range_ns[k]) lines.push(`in ${lanes.names[c.range_name[k]]}, ${duration(c.range_ns[k])}`);
      for (let k = one.call; k < one.call + one.calls; ++k)
        if (c.blocked_begin[k] <= t && t < c.blocked_begin[k] + c.blocked_ns[k]) lines.push(`${lanes.names[c.blocked_name[k]]}, ${duration(c.blocked_ns[k])}`);
    }
    return { lines, x: x(t), y };
  }
  const zoom = (factor, middle) => {
    const span = Math.min(length(), Math.max(100, (view[1] - view[0]) * factor)), share = (middle - view[0]) / (view[1] - view[0]);
    const begin = Math.max(0, Math.min(length() - span, middle - share * span));
    view = [begin, begin + span];
    plot.redraw();
  };
  const pan = (share) => {
    const span = view[1] - view[0], begin = Math.max(0, Math.min(length() - span, view[0] + share * span));
    view = [begin, begin + span];
    plot.redraw();
  };
  const reset = () => {
    view = [0, length()];
    plot.redraw();
  };
  function nextOp(by) {
    cursor ??= { row: 0, t: by > 0 ? -1 : length() };
    const one = cell(cursor.row), begins = Array.from({ length: one.ops }, (_, i) => one.op + i);
    const found = by > 0 ? begins.find((i) => c.op_begin[i] > cursor.t) : begins.findLast((i) => c.op_begin[i] < cursor.t);
    if (found === undefined) return true;
    cursor.t = c.op_begin[found];
    const span = view[1] - view[0];
    if (cursor.t < view[0] || cursor.t > view[1]) {
      const begin = Math.max(0, Math.min(length() - span, cursor.t - span / 2));
      view = [begin, begin + span];
    }
    plot.redraw();
    return tell(cursor.row, cursor.t, cursor.row * rowHeight + rowHeight);
  }
  let drag = null;
  const plot = canvasPlot({
    label: 'Timeline of one step on all ranks. Left and right move, plus and minus zoom, 0 shows all; up and down choose a rank, n and p go to its next and previous operation. The operations are in the table below.',
    height: () => R * rowHeight + 26,
    draw,
    at: (px, py) => (drag ? null : tell(Math.floor(py / rowHeight), time(px), py)),
    keys: (key) => {
      if (key === '+' || key === '=') return zoom(0.5, cursor?.t ?? (view[0] + view[1]) / 2), true;
      if (key === '-') return zoom(2, cursor?.t ?? (view[0] + view[1]) / 2), true;
      if (key === '0') return reset(), true;
      if (key === 'ArrowLeft') return pan(-0.2), true;
      if (key === 'ArrowRight') return pan(0.2), true;
      if (key === 'n' || key === 'p') return nextOp(key === 'n' ? 1 : -1);
      if (key !== 'ArrowUp' && key !== 'ArrowDown') return false;
      cursor = { row: Math.max(0, Math.min(R - 1, (cursor?.row ?? -1) + (key === 'ArrowDown' ? 1 : -1))), t: cursor?.t ?? view[0] };
      plot.redraw();
      return tell(cursor.row, Math.max(view[0], Math.min(view[1], cursor.t)), cursor.row * rowHeight + rowHeight);
    },
  });
  plot.canvas.dataset.plot = 'timeline' + suffix;
  plot.canvas.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && document.activeElement !== plot.canvas) return;
    event.preventDefault();
    const rect = plot.canvas.getBoundingClientRect();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 600);
    else zoom(event.deltaY > 0 ? 1.25 : 0.8, time(event.clientX - rect.left));
  }, { passive: false });
  plot.canvas.addEventListener('pointerdown', (event) => {
    if (event.button) return;
    const from = event.clientX - plot.canvas.getBoundingClientRect().left;
    if (from < kLeft) return;
    plot.canvas.setPointerCapture(event.pointerId);
    drag = [from, from];
  });
  plot.canvas.addEventListener('pointermove', (event) => {
    if (!drag) return;
    drag[1] = Math.max(kLeft, event.clientX - plot.canvas.getBoundingClientRect().left);
    plot.redraw();
  });
  const endDrag = () => {
    if (!drag) return;
    const [a, b] = [time(Math.min(...drag)), time(Math.max(...drag))], wide = Math.abs(drag[1] - drag[0]);
    drag = null;
    if (wide > 5) view = [Math.max(0, a), Math.min(length(), b)];
    plot.redraw();
  };
  plot.canvas.addEventListener('pointerup', endDrag);
  plot.canvas.addEventListener('pointercancel', endDrag);
  plot.canvas.addEventListener('dblclick', reset);

  const told = h('p', { class: 'note' }), spot = h('div'), missing = h('p', { class: 'absent', hidden: true });
  const words = { median: 'median', worst: 'longest', best: 'shortest', 'asked for': 'asked for', all: 'all that was recorded' };
  const list = h('select', { id: 'timeline-step' + suffix, onchange: () => choose(Number(list.value)) }, lanes.steps.map((one, i) =>
    h('option', { value: i }, one.why === 'all' ? words.all : `${unit} ${one.index}${one.why ? ` (${words[one.why]})` : ''}${one.flags & 1 ? ' warm-up' : ''}${one.flags & 2 ? ' incomplete' : ''}`)));
  const button = (text, title, act) => h('button', { class: 'small', type: 'button', title, 'aria-label': title, onclick: act }, text);
  function choose(index) {
    s = Math.max(0, Math.min(lanes.steps.length - 1, index));
    list.value = s;
    missing.hidden = true;
    cursor = null;
    reset();
    const one = step(), ops = [], pieces = [];
    let coarse = 0, left = 0;
    for (let r = 0; r < R; ++r) {
      const here = cell(r);
      for (let i = here.op; i < here.op + here.ops; ++i) ops.push([r, i]);
      for (let i = here.piece; i < here.piece + here.pieces; ++i) pieces.push([r, i]);
      coarse += here.coarse;
      left += here.left;
    }
    told.textContent = `${duration(one.length_ns)} from the first rank's begin to the last one's end` + (one.step_ns !== null ? `; the job's ${unit} took ${duration(one.step_ns)}` : '') + '.' +
      (coarse ? ` ${plural(coarse, 'rank')} drawn coarser than recorded: each part shows what fills most of it.` : '') + (left ? ` Of operations the longest; ${count(left)} shorter ones left out.` : '');
    const op = (key, title, text, value = (i) => c[key][i]) => ({ key, title, numeric: true, value: (k) => value(ops[k][1]), text: (k) => (Number.isNaN(value(ops[k][1])) || value(ops[k][1]) === null ? '-' : text(value(ops[k][1]))) });
    const kind = (i) => lanes.kinds[c.op_kind[i]];
    const rank = (rows) => ({ key: 'rank', title: 'rank', numeric: true, value: (k) => lanes.ranks[rows[k][0]], text: (k) => String(lanes.ranks[rows[k][0]]) });
    const begins = [];
    for (let r = 0, at = 0; r < R; ++r) {
      at = cell(r).begin;
      for (let i = cell(r).piece; i < cell(r).piece + cell(r).pieces; ++i) {
        begins.push(at);
        at += c.piece_ns[i];
      }
    }
    spot.replaceChildren(ops.length ? behind(`operations-${unit}-${one.index}`, [rank(ops),
      { key: 'op', title: 'operation', value: (k) => kind(ops[k][1]).op, text: (k) => kind(ops[k][1]).op },
      { key: 'group', title: 'group', value: (k) => kind(ops[k][1]).group, text: (k) => kind(ops[k][1]).group },
      op('bytes', 'bytes', bytes, (i) => kind(i).bytes), op('op_begin', 'begin', duration), op('op_ns', 'in flight', duration), op('op_wait_ns', 'waits', duration),
      op('op_transfer_ns', 'transfers', duration), op('op_last_rank', 'last rank', String), op('op_charge_ns', 'by', duration), op('op_error_ns', 'clock error', duration)], ops.length) : absent(`No communication in this ${unit}.`),
    csvButton(`pieces-${unit}-${one.index}`, [rank(pieces), { key: 'begin_ns', value: (k) => begins[k] }, { key: 'duration_ns', value: (k) => c.piece_ns[pieces[k][1]] },
      { key: 'state', value: (k) => kStates[c.piece_state[pieces[k][1]]][0] }], pieces.length));
    spot.querySelector('[data-csv^=pieces]')?.replaceChildren('CSV of what is drawn');
  }
  const command = `lockstep report RUN --timeline-steps `;
  function open(index) {
    const at = lanes.steps.findIndex((one) => one.index === index);
    document.getElementById('timeline').scrollIntoView();
    if (at >= 0) choose(at);
    else {
      missing.replaceChildren(`Step ${index} is not on this page (${count(lanes.steps.length)} of ${count(lanes.all_steps)} are). `, code(`${command}${index}:${index + 1}`), ' brings it here.');
      missing.hidden = false;
    }
  }
  const go = h('input', { type: 'number', id: 'timeline-go' + suffix, 'aria-label': `go to ${unit} number`, placeholder: 'number', onchange: () => go.value !== '' && open(Number(go.value)) });
  choose(s);
  return {
    section: [
      lanes.slices && step().why !== 'all' ? h('p', { class: 'note' }, 'This run has no steps. It is cut into slices that hold as many collectives each.') : null,
      h('div', { class: 'controls' }, h('label', { class: 'control' }, `${unit[0].toUpperCase()}${unit.slice(1)} `, list), button('‹', `previous ${unit}`, () => choose(s - 1)), button('›', `next ${unit}`, () => choose(s + 1)),
        lanes.slices ? null : h('label', { class: 'control' }, 'go to ', go),
        button('+', 'zoom in', () => zoom(0.5, (view[0] + view[1]) / 2)), button('−', 'zoom out', () => zoom(2, (view[0] + view[1]) / 2)), button('all', 'show all', reset),
        h('span', { class: 'dim' }, 'drag to zoom, double click for all; Ctrl + wheel zooms')),
      missing,
      legend([['compute', 'compute'], ['transfer', 'exposed transfer'], ['wait', 'waiting that costs time'], ['hidden-wait striped', 'waiting hidden under compute'], ['hidden-transfer striped', 'transfer hidden under compute'],
        ...(c.piece_state?.includes(7) || c.piece_state?.includes(3) ? [['unsplit', 'exposed, unsplit'], ['hidden-unsplit striped', 'the same, hidden']] : []), ...(c.piece_state?.includes(4) ? [['posted', 'posted, not known to move']] : []),
        ...(c.piece_state?.includes(8) ? [['copy', 'copy']] : []), ...(c.piece_state?.includes(10) ? [['input', 'input']] : []), ...(c.piece_state?.some((state) => state >= 11) ? [['blocked', 'blocked: asleep, in locks, files, sockets']] : [])]),
      told, plot.box,
      small ? null : h('p', { class: 'dim' }, '▲ this rank arrived last: the others wait for it until here.'),
      lanes.ranks.length < lanes.all_ranks ? h('p', { class: 'note' }, `${count(lanes.ranks.length)} of ${plural(lanes.all_ranks, 'rank')}: those that are named, the latest, the busiest and the least busy, and others evenly spread.`) : null,
      lanes.unread.map((one) => absent(`rank ${one.rank}: `, name(one.why))),
      lanes.steps.length < lanes.all_steps ? h('p', { class: 'dim' }, `${count(lanes.steps.length)} of ${plural(lanes.all_steps, unit)} are on this page.`) : null,
      spot,
    ],
    open, shown: () => s,
  };
}
