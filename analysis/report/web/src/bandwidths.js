// Bus bandwidth against size, beside the highest that was measured.

import { h } from './dom.js';
import { bandwidth, bytes, count, duration, plural } from './format.js';
import { chart } from './chart.js';
import { colour, sizeSplits } from './plot.js';

// By kind of operation, in this order.
const kColours = ['point', 'transfer', 'copy', 'unsplit', 'hidden', 'wait'];

export function bandwidths(data) {
  const rows = data.collectives.rows.filter((row) => row.busbw !== null && row.bytes > 0);
  if (rows.length < 2) return null;
  const ops = [...new Set(rows.map((row) => row.op))], peak = rows.reduce((most, row) => (row.busbw > most.busbw ? row : most));
  const style = (op) => colour(kColours[ops.indexOf(op) % kColours.length]);
  const least = Math.min(...rows.map((row) => row.bytes)), most = Math.max(...rows.map((row) => row.bytes));
  const plot = chart({
    name: 'bandwidths', height: 260,
    label: 'Bus bandwidth of collectives against their size, and the highest that was measured. Left and right move from point to point; the data is in the table above.',
    data: () => [null, ...ops.map((op) => [rows.filter((row) => row.op === op).map((row) => row.bytes), rows.filter((row) => row.op === op).map((row) => row.busbw)])],
    points: () => rows.map((row) => ({ x: row.bytes, y: row.busbw, lines: [`${row.op} of ${bytes(row.bytes)} among ${row.members}`, `bus bandwidth ${bandwidth(row.busbw)}, ${Math.round(100 * row.busbw / peak.busbw)} % of the highest`,
      `transfer ${duration(row.transfer_ns_median)}, ${plural(row.count, 'time')}`] })),
    options: () => ({
      mode: 2,
      cursor: { drag: { x: true, y: false } },
      scales: { x: { time: false, distr: 3, range: () => [least / 2, most * 2] }, y: { range: () => [0, peak.busbw * 1.15] } },
      axes: [{ splits: sizeSplits, filter: (u, all) => all, values: (u, all) => all.map((v) => bytes(v)) }, { values: (u, splits) => splits.map((v) => (v ? bandwidth(v) : '0')), size: 76 }],
      series: [null, ...ops.map((op) => ({
        paths: (u, series) => {
          const { ctx } = u, ratio = devicePixelRatio || 1, [xs, ys] = u.data[series];
          ctx.save();
          ctx.fillStyle = style(op);
          for (let i = 0; i < xs.length; ++i) {
            ctx.beginPath();
            ctx.arc(u.valToPos(xs[i], 'x', true), u.valToPos(ys[i], 'y', true), 4 * ratio, 0, 7);
            ctx.fill();
          }
          ctx.restore();
          return null;
        } }))],
      hooks: { draw: [(u) => {
        const { ctx, bbox } = u, ratio = devicePixelRatio || 1, y = u.valToPos(peak.busbw, 'y', true);
        ctx.save();
        ctx.strokeStyle = ctx.fillStyle = colour('fg2');
        ctx.setLineDash([4 * ratio, 4 * ratio]);
        ctx.beginPath();
        ctx.moveTo(bbox.left, y);
        ctx.lineTo(bbox.left + bbox.width, y);
        ctx.stroke();
        ctx.font = `${11 * ratio}px system-ui, sans-serif`;
        ctx.textAlign = 'left';
        ctx.fillText(`highest measured: ${bandwidth(peak.busbw)}, ${peak.op} of ${bytes(peak.bytes)}`, bbox.left + 6 * ratio, y - 6 * ratio);
        ctx.restore();
      }] },
    }),
  });
  return [h('h3', {}, 'Bus bandwidth against size'),
    h('p', { class: 'note' }, `Each point is a row of the table above. The line is the highest that this run reached, not what the network can do. Small sizes far below it pay a fixed cost; large ones below it share the network, or have a slow way.`),
    h('p', { class: 'legend' }, ops.map((op, i) => h('span', {}, h('i', { class: 'swatch ' + kColours[i % kColours.length] }), op, ` (${count(rows.filter((row) => row.op === op).length)})`))), plot.box];
}
