// Rank by step: one texel per cell, scaled by the browser.

import { absent, h, select } from './dom.js';
import { count, duration, plural } from './format.js';
import { canvasPlot, colour, niceStep } from './plot.js';
import { drawScale, scaleOf, texels } from './scale.js';
import { behind } from './table.js';

const kMeasures = {
  delay_ns: ['arrival delay', 'behind the first rank to arrive, median over the step\'s collectives'],
  step_ns: ['step time', 'length of the step on this rank'],
  wait_ns: ['exposed waiting', 'waiting for other ranks that compute does not hide'],
  transfer_ns: ['exposed transfer', 'transfer that compute does not hide, with what is unsplit'],
  compute_ns: ['compute', 'compute time in the step'],
  blocked_ns: ['blocked', 'asleep, or waiting for locks, files and sockets'],
  idle_ns: ['idle', 'neither compute nor communication'],
};

// Of a named rank above the map, and between these rows and it.
const kPinned = 12, kGap = 9;

const presentMeasures = (map) => Object.keys(kMeasures).filter((key) => map.measures[key]);
// Those that are not shown at first, unless the first has nothing to show: they are unpacked later.
export const hiddenMeasures = (map) => presentMeasures(map).slice(1);
const positive = (values) => values?.some?.((value) => value > 0) ?? false;
export const hasSomething = (map) => Object.values(map?.measures ?? {}).some(positive);

export function heatmap(data, openStep) {
  const map = data.heatmap;
  if (!map) return [absent('This run has no steps, so there is nothing to lay out by step. Steps are seen where the program calls lockstep_step(), has a step range (--step-range NAME), trains with PyTorch under lockstep run, or repeats a sequence of collectives.')];
  const rows = map.ranks.length, columns = map.steps.length;
  const binned = map.ranks_per_row > 1 || map.steps_per_column > 1;
  const present = presentMeasures(map);
  // All delays are nothing where clocks or the job say so: the first measure that has something to show.
  let measure = present.find((key) => positive(map.measures[key])) ?? present[0], cursor = null;
  // Of a difference of two ranks' times.
  const { clock_error_ns_max: clockError } = data.analysis.trust;
  const clocks = clockError === null ? 'clock error unknown' : `clock error ± ${duration(2 * clockError)} at most`;
  const scales = {};
  const scale = (key) => (scales[key] ??= scaleOf(map.measures[key], key !== 'step_ns' && key !== 'compute_ns'));

  // Ranks that findings name have rows of their own above a map whose rows are thin or shared.
  const named = new Set(data.named), rowOf = new Map(map.ranks_per_row > 1 ? [] : [...map.ranks].map((rank, row) => [rank, row]));
  const pinned = map.pinned ? map.pinned.ranks : rows > 32 ? data.named.filter((rank) => rowOf.has(rank)).slice(0, 8) : [];
  const P = pinned.length;
  // Rows of their own where ranks share those of the map (nothing of a measure that is known of none of them), else copies of these.
  const pinnedRows = map.pinned?.measures ?? {};
  const pinnedValues = (key) => (pinnedRows[key] ??= Float64Array.from({ length: P * columns }, (_, i) => map.measures[key][rowOf.get(pinned[Math.floor(i / columns)]) * columns + i % columns]));

  const all = data.ranks, position = new Map([...all.rank].map((rank, r) => [rank, r]));
  const nodeOf = (rank) => all.node[position.get(rank)];
  const left = 72, top = 4 + (P ? P * kPinned + kGap : 0), rowHeight = rows <= 8 ? 22 : rows <= 32 ? 16 : rows <= 80 ? 8 : rows <= 200 ? 3 : 0;
  const mapHeight = rowHeight ? rows * rowHeight : Math.min(480, Math.max(300, rows));
  const bands = all.nodes.length > 1 && mapHeight / all.nodes.length >= 2;
  const rankName = (row) => {
    if (row < P) return `rank ${pinned[row]}`;
    const first = map.ranks[row - P];
    return map.ranks_per_row > 1 ? `ranks ${first} and ${map.ranks_per_row - 1} more` : `rank ${first}`;
  };
  const nodeName = (row) => {
    const node = nodeOf(row < P ? pinned[row] : map.ranks[row - P]);
    return node === undefined || all.nodes.length < 2 ? '' : ` · ${all.nodes[node]}`;
  };
  const stepName = (column) => (map.steps_per_column > 1 ? `steps from ${map.steps[column]} (${map.steps_per_column})` : `step ${map.steps[column]}`);
  const plotWidth = (width) => width - left - 8;
  const rowTop = (row) => (row < P ? 4 + row * kPinned : top + (row - P) * mapHeight / rows);
  const rowTall = (row) => (row < P ? kPinned : mapHeight / rows);
  const valueAt = (row, column) => (row < P ? pinnedValues(measure)[row * columns + column] : map.measures[measure][(row - P) * columns + column]);
  let width = 0;

  function draw(g, w, tall) {
    width = w;
    g.imageSmoothingEnabled = false;
    g.drawImage(texels(map.measures[measure], rows, columns, scale(measure)), left, top, plotWidth(w), mapHeight);
    if (P) g.drawImage(texels(pinnedValues(measure), P, columns, scale(measure)), left, 4, plotWidth(w), P * kPinned);
    g.textAlign = 'right';
    g.fillStyle = colour('wait');
    for (let row = 0; row < P; ++row) g.fillText(`rank ${pinned[row]}`, left - 10, rowTop(row) + kPinned / 2);
    const every = Math.max(1, Math.ceil(14 / (mapHeight / rows)));
    for (let row = 0; row < rows; row += every) {
      g.fillStyle = colour(every === 1 && named.has(map.ranks[row]) ? 'wait' : 'fg2');
      g.fillText(`rank ${map.ranks[row]}`, left - 10, top + (row + 0.5) * mapHeight / rows);
    }
    // Where in the map the named ones are.
    g.fillStyle = colour('wait');
    for (const rank of data.named) {
      const at = map.ranks_per_row > 1 ? Math.floor((position.get(rank) ?? -1) / map.ranks_per_row) : rowOf.get(rank) ?? -1;
      if (at < 0) continue;
      const y = top + (at + 0.5) * mapHeight / rows;
      g.beginPath();
      g.moveTo(left - 8, y - 4);
      g.lineTo(left - 1, y);
      g.lineTo(left - 8, y + 4);
      g.fill();
    }
    if (bands) {
      for (let row = 0, from = 0; row < rows; from = row) {
        const node = nodeOf(map.ranks[row]);
        while (row < rows && nodeOf(map.ranks[row]) === node) ++row;
        g.fillStyle = colour(node % 2 ? 'idle' : 'posted');
        g.fillRect(w - 7, top + from * mapHeight / rows, 5, (row - from) * mapHeight / rows);
      }
    }
    g.fillStyle = colour('fg2');
    g.textAlign = 'center';
    const ticks = Math.max(1, Math.round(niceStep(columns, plotWidth(w) / 70)));
    for (let column = 0; column < columns; column += ticks)
      g.fillText(map.steps[column], left + (column + 0.5) * plotWidth(w) / columns, top + mapHeight + 14);
    // Warm-up and incomplete steps are told apart: they are left out of means and medians.
    for (let column = 0; column < columns; ++column) {
      if (!map.flags[column]) continue;
      g.fillStyle = map.flags[column] & 6 ? colour('wait') : colour('fg2');
      g.fillRect(left + column * plotWidth(w) / columns, top + mapHeight + 2, Math.max(2, plotWidth(w) / columns - 1), 3);
    }
    drawScale(g, left, tall - 10, Math.min(260, w / 3), scale(measure));
    if (cursor) {
      g.strokeStyle = '#fff';
      g.lineWidth = 3;
      const box = [left + cursor[1] * plotWidth(w) / columns, rowTop(cursor[0]), Math.max(3, plotWidth(w) / columns), Math.max(3, rowTall(cursor[0]))];
      g.strokeRect(...box);
      g.strokeStyle = '#000';
      g.lineWidth = 1;
      g.strokeRect(...box);
    }
  }
  function tell(row, column) {
    const value = valueAt(row, column);
    const flags = map.flags[column];
    return {
      lines: [`${rankName(row)}${nodeName(row)} · ${stepName(column)}`,
        `${kMeasures[measure][0]} ${Number.isNaN(value) ? 'not recorded' : duration(value)}${map.steps_per_column > 1 || (row >= P && map.ranks_per_row > 1) ? ' (largest)' : ''}`,
        ...(measure === 'delay_ns' ? [clocks] : []),
        ...(flags & 1 ? ['warm-up: left out of means'] : []), ...(flags & 2 ? ['not complete on every rank'] : []),
        ...(flags & 4 ? ['outside of what is analysed: in no figure'] : [])],
      x: left + (column + 0.5) * plotWidth(width) / columns, y: rowTop(row) + rowTall(row) / 2,
    };
  }
  const cellAt = (x, y) => {
    const column = Math.floor((x - left) / plotWidth(width) * columns), inMap = Math.floor((y - top) / mapHeight * rows);
    const above = Math.floor((y - 4) / kPinned), row = inMap >= 0 && inMap < rows ? P + inMap : above >= 0 && above < P ? above : -1;
    return column >= 0 && column < columns && row >= 0 ? [row, column] : null;
  };
  const plot = canvasPlot({
    label: 'Heatmap of ranks by steps. Arrow keys move from cell to cell, Enter opens the step in the timeline; the data is in the table below.',
    height: () => top + mapHeight + 50,
    draw,
    at: (x, y) => {
      const cell = cellAt(x, y);
      return cell && tell(...cell);
    },
    pressed: (x, y) => {
      const cell = cellAt(x, y);
      if (cell && map.steps_per_column === 1) openStep(map.steps[cell[1]]);
    },
    keys: (key) => {
      const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      if (key === 'Enter' && cursor && map.steps_per_column === 1) {
        openStep(map.steps[cursor[1]]);
        return true;
      }
      if (!moves[key]) return false;
      cursor ??= [0, -moves[key][1] || 0];
      cursor = [Math.max(0, Math.min(P + rows - 1, cursor[0] + moves[key][0])), Math.max(0, Math.min(columns - 1, cursor[1] + moves[key][1]))];
      plot.redraw();
      return tell(...cursor);
    },
  });
  plot.canvas.dataset.plot = 'heatmap';
  plot.canvas.addEventListener('blur', () => { cursor = null; plot.redraw(); });
  const note = h('p', { class: 'note' });
  const [control, list] = select('Measure', present.map((key) => [key, kMeasures[key][0]]), (key) => {
    if (map.measures[key].packed) return void (list.value = measure); // For the moment until it is unpacked.
    measure = key;
    describe();
    plot.redraw();
  });
  list.id = 'heatmap-measure';
  list.value = measure;
  function describe() {
    note.textContent = `Each cell: ${kMeasures[measure][1]}` +
      (binned ? `; the largest of ${plural(map.ranks_per_row, 'rank')} and ${plural(map.steps_per_column, 'step')} each (${count(map.rank_count)} ranks, ${count(map.step_count)} steps).` : '.') +
      (measure === 'delay_ns' ? ` Across ranks: ${clocks}.` : '') + ' A bright row is a slow rank, a bright block a slow node, a bright column a delay of all ranks.' +
      (data.named.length ? ' Red: ranks that a finding names' + (P ? `; ${P < data.named.length ? `the first ${count(P)} have` : P === 1 ? 'it has' : 'they have'} a row at the top, too.` : '.') : '') +
      (bands ? ' The strip at the right: hosts, in turn.' : '');
  }
  describe();
  const columnsOfTable = [
    { key: 'rank', title: 'rank', numeric: true, value: (i) => map.ranks[Math.floor(i / columns)], text: (i) => String(map.ranks[Math.floor(i / columns)]) },
    { key: 'step', title: 'step', numeric: true, value: (i) => map.steps[i % columns], text: (i) => String(map.steps[i % columns]) },
    ...present.map((key) => ({ key, title: kMeasures[key][0], numeric: true, value: (i) => map.measures[key][i], text: (i) => duration(map.measures[key][i]) })),
  ];
  return [h('div', { class: 'controls' }, control), note, plot.box,
    map.measures.delay_ns ? null : absent('No arrival delay: this run has no collectives whose arrivals could be compared across ranks.'),
    behind('heatmap', columnsOfTable, rows * columns),
    map.pinned ? [h('p', { class: 'dim behind-of' }, 'of the named ranks'), behind('heatmap-named', [
      { key: 'rank', title: 'rank', numeric: true, value: (i) => pinned[Math.floor(i / columns)], text: (i) => String(pinned[Math.floor(i / columns)]) }, columnsOfTable[1],
      ...present.map((key) => ({ key, title: kMeasures[key][0], numeric: true, value: (i) => pinnedValues(key)[i], text: (i) => duration(pinnedValues(key)[i]) }))], P * columns)] : null];
}
