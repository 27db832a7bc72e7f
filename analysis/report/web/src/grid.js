// Rows of ranks by columns of something, as coloured cells with a tip and arrow keys.

import { canvasPlot, colour } from './plot.js';
import { drawScale, scaleOf, texels } from './scale.js';

// values(): row by row. rowNames: what stands at the left; under(g, w, top, x(column)): draws below the cells. lines(row, column, value): of the tip.
export function grid({ id, label, rowNames, columns, values, fromZero = true, text, lines, under, underTall = 0, red = () => false }) {
  const rows = rowNames.length, left = 72, top = 4, rowTall = rows <= 8 ? 20 : rows <= 24 ? 14 : rows <= 48 ? 9 : Math.max(2, 420 / rows);
  const tall = rows * rowTall;
  let width = 0, cursor = null;
  const plotWidth = () => width - left - 8;
  const tell = ([row, column]) => ({ lines: lines(row, column, values()[row * columns + column]), x: left + (column + 0.5) * plotWidth() / columns, y: top + (row + 0.5) * rowTall });
  const plot = canvasPlot({
    label, height: () => top + tall + underTall + 34,
    draw: (g, w, whole) => {
      width = w;
      const scale = scaleOf(values(), fromZero);
      g.imageSmoothingEnabled = false;
      g.drawImage(texels(values(), rows, columns, scale), left, top, plotWidth(), tall);
      g.textAlign = 'right';
      const every = Math.max(1, Math.ceil(13 / rowTall));
      for (let row = 0; row < rows; row += every) {
        g.fillStyle = colour(every === 1 && red(row) ? 'wait' : 'fg2');
        g.fillText(rowNames[row], left - 8, top + (row + 0.5) * rowTall);
      }
      g.fillStyle = colour('fg2');
      under?.(g, w, top + tall, (column) => left + column * plotWidth() / columns);
      drawScale(g, left, whole - 10, Math.min(260, w / 3), scale, text);
      if (!cursor) return;
      const box = [left + cursor[1] * plotWidth() / columns, top + cursor[0] * rowTall, Math.max(3, plotWidth() / columns), Math.max(3, rowTall)];
      for (const [style, line] of [['#fff', 3], ['#000', 1]]) {
        g.strokeStyle = style;
        g.lineWidth = line;
        g.strokeRect(...box);
      }
    },
    at: (x, y) => {
      const column = Math.floor((x - left) / plotWidth() * columns), row = Math.floor((y - top) / rowTall);
      return column >= 0 && column < columns && row >= 0 && row < rows ? { ...tell([row, column]), x, y } : null;
    },
    keys: (key) => {
      const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[key];
      if (!move) return false;
      cursor = cursor ? [Math.max(0, Math.min(rows - 1, cursor[0] + move[0])), Math.max(0, Math.min(columns - 1, cursor[1] + move[1]))] : [0, 0];
      plot.redraw();
      return tell(cursor);
    },
  });
  plot.canvas.dataset.plot = id;
  plot.canvas.addEventListener('blur', () => { cursor = null; plot.redraw(); });
  return plot;
}
