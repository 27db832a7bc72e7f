// What a transfer costs by its size, and what a step would take with buckets of another size.

import { absent, code, h, name, select } from './dom.js';
import { bytes, count, duration, interval, number, percent, plural } from './format.js';
import { chart, marker } from './chart.js';
import { colour, sizeSplits } from './plot.js';
import { behind } from './table.js';

const kMiB = 1 << 20;

export function scatter(data) {
  const { kinds, left_out: leftOut } = data.scatter, buckets = data.analysis.buckets;
  if (!kinds.length) {
    return [absent(leftOut > 0
      ? `No transfer to draw: of ${plural(leftOut, 'collective')} none has a certain one. They are non-blocking and moved only now and then, are uneven, share a kernel, or lack members; what a transfer costs cannot be derived from them.`
      : data.analysis.trust.collectives > 0 ? 'No collective of this run moves data.' : 'No collective operation was recorded.')];
  }
  let kind = kinds[0];
  const model = () => (kind.op === 'all-reduce' ? buckets?.cost_model : null);
  const binned = () => Boolean(kind.bins);
  const column = (key) => (kind.bins ?? kind.points)[key];
  const size = () => column('bytes').length;
  let memo = null;
  const points = () => (memo ??= Array.from({ length: size() }, (_, i) => ({
    x: column('bytes')[i], y: column('transfer_ns')[i] / 1e6,
    lines: () => [`${kind.op} of ${bytes(column('bytes')[i])} among ${kind.members}`,
      `transfer ${duration(column('transfer_ns')[i])}`,
      binned() ? `${plural(column('count')[i], 'collective')} about here` : Number.isNaN(column('step')[i]) ? 'outside of steps' : `step ${column('step')[i]}`],
  })));
  const line = () => {
    const m = model();
    if (!m || m.alpha_ns === null || m.beta_ns_per_byte === null) return null;
    const xs = [...column('bytes')].filter((v) => v > 0), low = Math.log(Math.min(...xs.slice(0, 1e5)) / 2), high = Math.log(Math.max(...xs.slice(0, 1e5)) * 2);
    const at = Array.from({ length: 60 }, (_, i) => Math.exp(low + (high - low) * i / 59));
    return [at, at.map((s) => Math.max(1e-6, (m.alpha_ns + m.beta_ns_per_byte * s) / 1e6)), m.line_error];
  };
  const dots = (u, series) => {
    const { ctx } = u, ratio = devicePixelRatio || 1, base = colour('point'), [xs, ys] = u.data[series];
    const most = binned() ? Math.max(...column('count')) : 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.clip();
    ctx.fillStyle = base;
    for (let i = 0; i < xs.length; ++i) {
      ctx.globalAlpha = binned() ? 0.25 + 0.75 * Math.log1p(column('count')[i]) / Math.log1p(most) : xs.length > 3000 ? 0.25 : 0.5;
      const wide = (binned() ? 5 : 4) * ratio;
      ctx.fillRect(u.valToPos(xs[i], 'x', true) - wide / 2, u.valToPos(ys[i], 'y', true) - wide / 2, wide, wide);
    }
    ctx.restore();
    return null;
  };
  const fitted = (u) => {
    const fit = line();
    if (!fit) return;
    const { ctx } = u, ratio = devicePixelRatio || 1, [xs, ys, error] = fit;
    const path = (factor) => xs.map((x, i) => [u.valToPos(x, 'x', true), u.valToPos(ys[i] * factor, 'y', true)]);
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.clip();
    if (error) {
      ctx.fillStyle = colour('wait');
      ctx.globalAlpha = 0.12;
      ctx.beginPath();
      [...path(1 + error), ...path(Math.max(0.05, 1 - error)).reverse()].forEach(([x, y], i) => (i ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
      ctx.fill();
      ctx.globalAlpha = 1;
    }
    ctx.strokeStyle = colour('wait');
    ctx.lineWidth = 2 * ratio;
    ctx.beginPath();
    path(1).forEach(([x, y], i) => (i ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
    ctx.stroke();
    ctx.restore();
    if (buckets?.current_cap_mb && kind.op === 'all-reduce') marker(u, buckets.current_cap_mb * kMiB, `cap now ${number(buckets.current_cap_mb)} MiB`, colour('fg2'), 0);
    if (buckets?.recommended_cap_mb && kind.op === 'all-reduce') marker(u, buckets.recommended_cap_mb * kMiB, `try ${number(buckets.recommended_cap_mb)} MiB`, colour('good'), 1);
  };
  // To 1, 2 or 5 times a power of ten: uPlot labels the ends of a logarithmic axis, too.
  const snap = (v, up) => {
    const power = 10 ** Math.floor(Math.log10(v)), digits = [1, 2, 5, 10];
    return power * (up ? digits.find((d) => d * power >= v * 0.999) : digits.findLast((d) => d * power <= v * 1.001));
  };
  const range = (u, low, high) => [snap(Math.max(low, 1e-6) / 1.3, false), snap(high * 1.3, true)];
  const plot = chart({
    name: 'scatter', height: 300, points,
    label: 'Transfer time against size of collectives, both logarithmic. Left and right move from point to point; the data is in the table below.',
    data: () => [null, [[...column('bytes')], [...column('transfer_ns')].map((ns) => ns / 1e6)]],
    options: () => ({
      mode: 2,
      cursor: { drag: { x: true, y: true } },
      scales: { x: { time: false, distr: 3, range: (u) => range(u, Math.min(...column('bytes').slice(0, 1e5)), Math.max(...column('bytes').slice(0, 1e5))) },
        y: { distr: 3, range: (u) => range(u, Math.min(...column('transfer_ns').slice(0, 1e5)) / 1e6, Math.max(...column('transfer_ns').slice(0, 1e5)) / 1e6) } },
      axes: [{ splits: sizeSplits, filter: (u, all) => all, values: (u, all) => all.map((v) => bytes(Math.round(v))) },
        { values: (u, splits) => splits.map((v) => (v === null ? '' : duration(v * 1e6))), size: 64 }],
      series: [null, { paths: dots }],
      hooks: { draw: [fitted] },
    }),
  });
  const told = h('p', { class: 'note' });
  const tableSpot = h('div');
  function describe() {
    memo = null;
    const m = model(), fit = line();
    told.replaceChildren(`${count(kind.count)} of kind ${kind.op} among ${kind.members}${binned() ? ', darker where there are more' : ''}; drag to zoom, double click to go back. `,
      fit ? `Line: ${duration(Math.round(m.alpha_ns))} + size / ${number(1 / m.beta_ns_per_byte, 3)} GB/s${m.line_error === null ? ' through the two sizes that there are' : `, typically ${percent(m.line_error)} off`}; it explains, predictions use the measured table.`
        : kind.op === 'all-reduce' && buckets ? 'No line is drawn: one size alone, or none that a line fits.' : 'No line is drawn: costs are fitted for the gradient buckets of replayed runs only.',
      leftOut ? ` ${plural(leftOut, 'collective')} without a certain transfer left out.` : '');
    const numeric = (key, title, text) => ({ key, title, numeric: true, value: (i) => column(key)[i], text: (i) => text(column(key)[i]) });
    tableSpot.replaceChildren(behind('transfers-' + kind.op, [numeric('bytes', 'bytes', bytes), numeric('transfer_ns', 'transfer', duration),
      binned() ? numeric('count', 'collectives', count) : numeric('step', 'step', (v) => (Number.isNaN(v) ? '-' : String(v)))], size()));
  }
  const [control] = select('Kind', kinds.map((one, i) => [i, `${one.op}, ${one.members} ranks (${count(one.count)})`]), (i) => {
    kind = kinds[i];
    describe();
    plot.redraw();
  });
  describe();
  return [kinds.length > 1 ? h('div', { class: 'controls' }, control) : null, told, plot.box, tableSpot];
}

export function curve(data) {
  const { buckets, replay, fsdp } = data.analysis;
  const parts = [];
  if (!buckets?.curve?.length) {
    const why = !buckets ? 'No gradient buckets were recognised in this run: PyTorch\'s DDP reports them, or a repeated sequence of all-reduces shows them.'
      : replay.skipped ? ['Buckets are known, but the run cannot be replayed: ', name(replay.skipped), '.'] : 'Buckets are known, but this run does not show what other buckets would cost.';
    parts.push(absent(...[why].flat()));
  } else {
    const all = buckets.curve, flat = buckets.flat_cap_mb;
    // Intervals may be much wider than what the curve has to say: they are cut, not the curve flattened.
    const steps = all.map((p) => p.predicted_step_ns / 1e6), least = Math.min(...steps), most = Math.max(...steps), room = Math.max(most - least, 0.05 * most);
    const bottom = Math.max(Math.min(...all.map((p) => (p.low_ns ?? p.predicted_step_ns) / 1e6)), least - room) - room * 0.1, top = Math.min(Math.max(...all.map((p) => (p.high_ns ?? p.predicted_step_ns) / 1e6)), most + room) + room * 0.25;
    const options = () => ({
      cursor: { drag: { x: true, y: false } },
      scales: { x: { time: false, distr: 3, range: (u, low, high) => [low / 1.3, high * 1.3] }, y: { range: [bottom, top] } },
      axes: [{ splits: sizeSplits, filter: (u, all) => all, values: (u, all) => all.map((v) => number(v) + ' MiB') }, { values: (u, splits) => splits.map((v) => duration(v * 1e6)), size: 64 }],
      series: [{}, { stroke: colour('point'), width: 2, points: { show: true, size: 7, fill: colour('bg') } }, { stroke: colour('line'), width: 1, points: { show: false } }, { stroke: colour('line'), width: 1, points: { show: false } }],
      bands: [{ series: [3, 2], fill: colour('band') }],
      hooks: {
        drawClear: [(u) => {
          if (!flat) return;
          const { ctx, bbox } = u, left = Math.max(bbox.left, u.valToPos(flat[0], 'x', true)), right = Math.min(bbox.left + bbox.width, u.valToPos(flat[1], 'x', true));
          ctx.save();
          ctx.fillStyle = colour('good');
          ctx.globalAlpha = 0.12;
          ctx.fillRect(left, bbox.top, Math.max(2, right - left), bbox.height);
          ctx.restore();
        }],
        draw: [(u) => {
          if (buckets.current_cap_mb) marker(u, buckets.current_cap_mb, `now ${number(buckets.current_cap_mb)} MiB`, colour('fg2'), 0);
          if (buckets.recommended_cap_mb) marker(u, buckets.recommended_cap_mb, `try ${number(buckets.recommended_cap_mb)} MiB`, colour('good'), 1);
        }],
      },
    });
    const plot = chart({
      name: 'cap-curve', height: 300, options,
      label: 'Predicted step time against bucket cap, with its 95 % interval. Left and right move from point to point; the data is in the table below.',
      data: () => [all.map((p) => p.cap_mb), all.map((p) => p.predicted_step_ns / 1e6), all.map((p) => (p.low_ns === null ? null : p.low_ns / 1e6)), all.map((p) => (p.high_ns === null ? null : p.high_ns / 1e6))],
      points: () => all.map((p) => ({ x: p.cap_mb, y: p.predicted_step_ns / 1e6, lines: [`${p.one_bucket ? 'all in one bucket' : `cap ${number(p.cap_mb)} MiB`}: ${plural(p.buckets, 'bucket')}`,
        `step ${duration(p.predicted_step_ns)}; ${interval(p.low_ns, p.high_ns)}`, ...(p.extrapolated ? ['beyond what was measured'] : [])] })),
    });
    parts.push(h('p', { class: 'note' }, 'Replayed with the gradients in other buckets; the band is the 95 % interval.',
      flat ? ` Green: caps as good as the recommended one, ${number(flat[0])} to ${number(flat[1])} MiB.` : ' No other cap is better by more than the interval.',
      buckets.exact_sizes ? '' : ' Sizes of single gradients are not known: where a bucket would be split is interpolated.'), plot.box);
    if (buckets.try) parts.push(h('p', { class: 'action' }, '→ ', code(name(buckets.try))));
    const orNone = (ns) => (ns === null ? '-' : duration(ns));
    const column = (key, title, text) => ({ key, title, numeric: true, value: (i) => (all[i][key] === null ? NaN : Number(all[i][key])), text: (i) => text(all[i][key]) });
    parts.push(behind('bucket-caps', [column('cap_mb', 'cap', (v) => number(v) + ' MiB'), column('buckets', 'buckets', count), column('predicted_step_ns', 'step', duration),
      column('low_ns', 'low', orNone), column('high_ns', 'high', orNone), column('extrapolated', 'extrapolated', (v) => (v ? 'yes' : 'no'))], all.length));
  }
  if (fsdp) {
    const rows = fsdp.units, column = (key, title, text) => ({ key, title, numeric: true, value: (i) => rows[i][key], text: (i) => text(rows[i][key]) });
    parts.push(h('h3', {}, 'Sharded parameters, unit by unit'), behind('fsdp-units', [column('unit', 'unit', String), column('bytes', 'bytes', bytes),
      column('gather_exposed_ns', 'exposed gather', duration), column('scatter_exposed_ns', 'exposed scatter', duration)], rows.length));
  }
  return parts;
}
