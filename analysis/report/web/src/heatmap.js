// Rank by step: one texel per cell, scaled by the browser.

import { absent, h, select } from './dom.js';
import { count, duration, plural } from './format.js';
import { quantile } from './data.js';
import { canvasPlot, colour, niceStep, viridis } from './plot.js';
import { behind } from './table.js';

const kMeasures = {
  delay_ns: ['arrival delay', 'behind the first rank to arrive, median over the step\'s collectives'],
  step_ns: ['step time', 'length of the step on this rank'],
  wait_ns: ['exposed waiting', 'waiting for other ranks that compute does not hide'],
  transfer_ns: ['exposed transfer', 'transfer that compute does not hide, with what cannot be split'],
  compute_ns: ['compute', 'compute time in the step'],
  idle_ns: ['idle', 'neither compute nor communication'],
};

// A cell's colour is looked up: there are more cells than shades an eye tells apart. The last is that of unknown cells.
const kShades = 1024;
const shades = Uint8Array.from([...Array.from({ length: kShades }, (_, i) => [...viridis((i + 0.5) / kShades), 255]), [128, 128, 128, 40]].flat());

export function heatmap(data, openStep) {
  const map = data.heatmap;
  if (!map) return [absent('This run has no steps, so there is nothing to lay out by step. Steps are seen where the program calls lockstep_step(), has a step range (--step-range NAME), trains with PyTorch under lockstep run, or repeats a sequence of collectives.')];
  const rows = map.ranks.length, columns = map.steps.length;
  const binned = map.ranks_per_row > 1 || map.steps_per_column > 1;
  const present = Object.keys(kMeasures).filter((key) => map.measures[key]);
  let measure = present[0], cursor = null;
  const limits = {};
  // Of a difference of two ranks' times.
  const { clock_error_ns_max: clockError } = data.analysis.trust;
  const clocks = clockError === null ? 'clock error unknown' : `clock error ± ${duration(2 * clockError)} at most`;
  const limit = (key) => (limits[key] ??= Math.max(1, quantile(map.measures[key], 0.99) * 1.02));
  const floor = (key) => (key === 'step_ns' || key === 'compute_ns' ? quantile(map.measures[key], 0.01) : 0);

  const left = 64, top = 4, rowHeight = rows <= 8 ? 22 : rows <= 32 ? 16 : rows <= 80 ? 8 : rows <= 200 ? 3 : 0;
  const mapHeight = rowHeight ? rows * rowHeight : Math.min(480, Math.max(300, rows));
  const rankName = (row) => {
    const first = map.ranks[row];
    return map.ranks_per_row > 1 ? `ranks ${first} and ${map.ranks_per_row - 1} more` : `rank ${first}`;
  };
  const stepName = (column) => (map.steps_per_column > 1 ? `steps from ${map.steps[column]} (${map.steps_per_column})` : `step ${map.steps[column]}`);
  const plotWidth = (width) => width - left - 8;
  let width = 0;

  function draw(g, w, tall) {
    width = w;
    const values = map.measures[measure], most = limit(measure), least = Math.min(floor(measure), most * 0.98);
    const image = new ImageData(columns, rows), texel = image.data, scale = kShades / (most - least);
    for (let i = 0; i < values.length; ++i) {
      const shade = Number.isNaN(values[i]) ? kShades : Math.max(0, Math.min(kShades - 1, Math.floor((values[i] - least) * scale)));
      for (let k = 0; k < 4; ++k) texel[i * 4 + k] = shades[shade * 4 + k];
    }
    const texels = document.createElement('canvas');
    texels.width = columns;
    texels.height = rows;
    texels.getContext('2d').putImageData(image, 0, 0);
    g.imageSmoothingEnabled = false;
    g.drawImage(texels, left, top, plotWidth(w), mapHeight);
    g.fillStyle = colour('fg2');
    g.textAlign = 'right';
    const every = Math.max(1, Math.ceil(14 / (mapHeight / rows)));
    for (let row = 0; row < rows; row += every) g.fillText(`rank ${map.ranks[row]}`, left - 6, top + (row + 0.5) * mapHeight / rows);
    g.textAlign = 'center';
    const ticks = Math.max(1, Math.round(niceStep(columns, plotWidth(w) / 70)));
    for (let column = 0; column < columns; column += ticks)
      g.fillText(map.steps[column], left + (column + 0.5) * plotWidth(w) / columns, top + mapHeight + 14);
    // Warm-up and incomplete steps are told apart: they are in no median.
    for (let column = 0; column < columns; ++column) {
      if (!map.flags[column]) continue;
      g.fillStyle = map.flags[column] & 6 ? colour('wait') : colour('fg2');
      g.fillRect(left + column * plotWidth(w) / columns, top + mapHeight + 2, Math.max(2, plotWidth(w) / columns - 1), 3);
    }
    // Scale.
    const scaleWidth = Math.min(220, w / 3), scaleTop = tall - 12;
    for (let i = 0; i < scaleWidth; ++i) {
      g.fillStyle = `rgb(${viridis(i / scaleWidth)})`;
      g.fillRect(left + i, scaleTop, 1.5, 8);
    }
    g.fillStyle = colour('fg2');
    g.textAlign = 'left';
    g.fillText(`${duration(Math.round(least))} to ${duration(Math.round(most))} and more`, left + scaleWidth + 8, scaleTop + 4);
    if (cursor) {
      g.strokeStyle = '#fff';
      g.lineWidth = 3;
      const box = [left + cursor[1] * plotWidth(w) / columns, top + cursor[0] * mapHeight / rows, Math.max(3, plotWidth(w) / columns), Math.max(3, mapHeight / rows)];
      g.strokeRect(...box);
      g.strokeStyle = '#000';
      g.lineWidth = 1;
      g.strokeRect(...box);
    }
  }
  function tell(row, column) {
    const value = map.measures[measure][row * columns + column];
    const flags = map.flags[column];
    return {
      lines: [`${rankName(row)} · ${stepName(column)}`,
        `${kMeasures[measure][0]} ${Number.isNaN(value) ? 'not recorded' : duration(value)}${binned ? ' (largest)' : ''}`,
        ...(measure === 'delay_ns' ? [clocks] : []),
        ...(flags & 1 ? ['warm-up: in no median'] : []), ...(flags & 2 ? ['not complete on every rank'] : []),
        ...(flags & 4 ? ['outside of what is analysed: in no figure'] : [])],
      x: left + (column + 0.5) * plotWidth(width) / columns, y: top + (row + 0.5) * mapHeight / rows,
    };
  }
  const cellAt = (x, y) => {
    const column = Math.floor((x - left) / plotWidth(width) * columns), row = Math.floor((y - top) / mapHeight * rows);
    return column >= 0 && column < columns && row >= 0 && row < rows ? [row, column] : null;
  };
  const plot = canvasPlot({
    label: 'Heatmap of ranks by steps. Arrow keys move from cell to cell, Enter opens the step in the timeline; the data is in the table below.',
    height: () => top + mapHeight + 42,
    draw,
    at: (x, y) => {
      const cell = cellAt(x, y);
      return cell && tell(...cell);
    },
    pressed: (x, y) => {
      const cell = cellAt(x, y);
      if (cell && !binned) openStep(map.steps[cell[1]]);
    },
    keys: (key) => {
      const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      if (key === 'Enter' && cursor && !binned) {
        openStep(map.steps[cursor[1]]);
        return true;
      }
      if (!moves[key]) return false;
      cursor ??= [0, -moves[key][1] || 0];
      cursor = [Math.max(0, Math.min(rows - 1, cursor[0] + moves[key][0])), Math.max(0, Math.min(columns - 1, cursor[1] + moves[key][1]))];
      plot.redraw();
      return tell(...cursor);
    },
  });
  plot.canvas.dataset.plot = 'heatmap';
  plot.canvas.addEventListener('blur', () => { cursor = null; plot.redraw(); });
  const note = h('p', { class: 'note' });
  const [control, list] = select('Measure', present.map((key) => [key, kMeasures[key][0]]), (key) => {
    measure = key;
    describe();
    plot.redraw();
  });
  list.id = 'heatmap-measure';
  function describe() {
    note.textContent = `Each cell: ${kMeasures[measure][1]}` +
      (binned ? `; the largest of ${plural(map.ranks_per_row, 'rank')} and ${plural(map.steps_per_column, 'step')} each (${count(map.rank_count)} ranks, ${count(map.step_count)} steps).` : '.') +
      (measure === 'delay_ns' ? ` Across ranks: ${clocks}.` : '') + ' A bright row is a slow rank, a bright block a slow node, a bright column a delay of all ranks.';
  }
  describe();
  const columnsOfTable = [
    { key: 'rank', title: 'rank', numeric: true, value: (i) => map.ranks[Math.floor(i / columns)], text: (i) => String(map.ranks[Math.floor(i / columns)]) },
    { key: 'step', title: 'step', numeric: true, value: (i) => map.steps[i % columns], text: (i) => String(map.steps[i % columns]) },
    ...present.map((key) => ({ key, title: kMeasures[key][0], numeric: true, value: (i) => map.measures[key][i], text: (i) => duration(map.measures[key][i]) })),
  ];
  return [h('div', { class: 'controls' }, control), note, plot.box,
    map.measures.delay_ns ? null : absent('No arrival delay: this run has no collectives whose arrivals could be compared across ranks.'),
    behind('heatmap', columnsOfTable, rows * columns)];
}
