// Sliders over replayed points; and what overlap and equal ranks would be worth.

import { absent, h, name } from './dom.js';
import { change, duration, interval, number, percent, plural, share } from './format.js';
import { csvButton, scrolling } from './table.js';

function others(data) {
  const { overlap, counterfactual } = data.analysis, rows = [];
  if (overlap) {
    rows.push(['as it is, replayed', overlap.t_actual_ns], ['communication takes no time', overlap.t_free_comm_ns], ['best order of all communication, same network', overlap.t_best_ns]);
    if (overlap.t_no_overlap_ns !== null) rows.push(['nothing hidden', overlap.t_no_overlap_ns]);
  }
  const parts = [];
  if (rows.length) parts.push(h('h3', {}, 'Overlap'), scrolling('overlap', h('table', {}, h('tbody', {}, rows.map(([what, ns]) =>
    h('tr', {}, h('th', { scope: 'row' }, what), h('td', { class: 'n' }, duration(ns)), h('td', { class: 'n' }, ns === overlap.t_actual_ns ? '' : change(ns / overlap.t_actual_ns - 1))))))),
  overlap.efficiency !== null ? h('p', { class: 'note' }, `Overlap efficiency ${percent(Math.max(0, Math.min(1, overlap.efficiency)))}: what is hidden, of what could be on this network.`) : null);
  if (counterfactual) {
    const types = Object.entries(counterfactual.S_t);
    parts.push(h('h3', {}, 'If all ranks did the same work in the same time'),
      h('p', {}, `Steps are ${number(counterfactual.S, 4)} × as long as they would be`, types.length ? '; by what is unequal: ' + types.map(([type, s]) => `${type} ${number(s, 4)} ×`).join(', ') : '',
        counterfactual.M_W !== null ? `. Equalising the slowest ranks alone regains ${percent(counterfactual.M_W)} of it` : '', '.'));
  }
  return parts;
}

export function whatIf(data) {
  const w = data.what_if;
  if (w.skipped) return [absent('Nothing can be replayed: ', name(w.skipped), '.')];
  const { axes, points } = w, { replay } = data.analysis;
  const at = { bandwidth: axes.bandwidth.indexOf(1), cap: 0, without: 0 };
  const still = { ...at };
  const index = (p) => (p.bandwidth * axes.cap_mb.length + p.cap) * axes.without.length + p.without;
  const stepAt = (p) => points.step_ns[index(p)];
  const base = stepAt(still);
  const capText = (i) => (i === 0 ? 'as it is' : axes.one_bucket[i] ? 'one bucket' : `${number(axes.cap_mb[i])} MiB`);
  const texts = {
    bandwidth: (i) => (axes.bandwidth[i] === null ? 'free communication' : axes.bandwidth[i] === 1 ? 'as it is' : `× ${axes.bandwidth[i]}`),
    cap: capText,
    without: (i) => (i === 0 ? 'as they are' : `rank${axes.without[i].length > 1 ? 's' : ''} ${axes.without[i].join(', ')} as fast as the others`),
  };
  const titles = { bandwidth: 'Network bandwidth', cap: 'Bucket cap', without: 'Stragglers' };
  const lengths = { bandwidth: axes.bandwidth.length, cap: axes.cap_mb.length, without: axes.without.length };
  const answer = h('div', { class: 'answer', id: 'whatif-answer', role: 'status', 'aria-live': 'polite' });
  function show() {
    const ns = stepAt(at), moved = Object.keys(at).filter((key) => at[key] !== still[key]);
    const bar = (value, what, swatch) => {
      const fill = h('i', { class: swatch }), row = h('div', { class: 'wbar' }, h('span', {}, what), h('div', {}, fill), h('b', {}, duration(value)));
      fill.style.width = (Number.isNaN(value) ? 0 : 100 * value / maxStep) + '%';
      return row;
    };
    const parts = [bar(base, 'now, replayed', 'compute'), bar(ns, moved.length ? 'then' : 'nothing changed', 'good')];
    if (Number.isNaN(ns)) parts.push(h('p', {}, 'Not answered: ', name(w.unanswered ?? 'this run cannot tell'), '.'));
    else if (moved.length) {
      const gain = base - ns, i = index(at);
      parts.push(h('p', {}, `${duration(Math.abs(gain))} ${gain >= 0 ? 'shorter' : 'longer'} (${share(Math.abs(gain), base)}); ${interval(points.low_ns[i], points.high_ns[i])}`,
        points.extrapolated[i] ? '; beyond what was measured' : '', '.'));
      if (moved.length > 1) {
        const singles = moved.map((key) => [titles[key], base - stepAt({ ...still, [key]: at[key] })]), sum = singles.reduce((total, [, one]) => total + one, 0);
        parts.push(h('p', { class: 'note' }, 'One by one: ', singles.map(([title, one]) => `${title.toLowerCase()} ${duration(one)}`).join(', '),
          `; that would be ${duration(sum)}, together they are ${duration(gain)}: `, Math.abs(sum - gain) < 0.01 * base ? 'they add up.' : sum > gain ? 'they overlap.' : 'each helps the other.'));
      }
    }
    answer.replaceChildren(...parts);
  }
  const maxStep = points.step_ns.reduce((most, ns) => (ns > most ? ns : most), base);
  const sliders = Object.keys(at).filter((key) => lengths[key] > 1).map((key) => {
    const output = h('output', {}, texts[key](at[key]));
    const input = h('input', { type: 'range', min: 0, max: lengths[key] - 1, step: 1, value: at[key], id: 'whatif-' + key, 'aria-valuetext': texts[key](at[key]), oninput: () => {
      at[key] = Number(input.value);
      output.textContent = texts[key](at[key]);
      input.setAttribute('aria-valuetext', output.textContent);
      show();
    } });
    return h('label', { class: 'slider' }, h('span', {}, titles[key]), input, output);
  });
  show();
  const grid = Array.from({ length: points.step_ns.length }, (_, i) => i);
  const decode = (i) => ({ without: i % axes.without.length, cap: Math.floor(i / axes.without.length) % axes.cap_mb.length, bandwidth: Math.floor(i / axes.without.length / axes.cap_mb.length) });
  const missing = [lengths.cap < 2 ? 'no other bucket cap: no gradient buckets were recognised, or the job is too large to replay them all here' : null, lengths.without < 2 ? 'no rank to speed up: none is named' : null].filter(Boolean);
  return [
    h('p', { class: 'note' }, `Every position was replayed (${plural(grid.length, 'combination')} over ${plural(w.steps, 'step')}; the replay with nothing changed is ${percent(w.self_error)} off what was measured).`,
      missing.length ? ` Not offered: ${missing.join('; ')}.` : ''),
    replay.notes?.map((text) => h('p', { class: 'note' }, 'Note: ', name(text))),
    h('div', { class: 'whatif' }, h('div', {}, sliders), answer),
    csvButton('what-if', [
      { key: 'bandwidth', value: (i) => axes.bandwidth[decode(i).bandwidth] ?? 'free' }, { key: 'cap_mb', value: (i) => axes.cap_mb[decode(i).cap] },
      { key: 'without_ranks', value: (i) => axes.without[decode(i).without].join(' ') }, { key: 'step_ns', value: (i) => points.step_ns[i] },
      { key: 'low_ns', value: (i) => points.low_ns[i] }, { key: 'high_ns', value: (i) => points.high_ns[i] }, { key: 'extrapolated', value: (i) => points.extrapolated[i] }], grid.length),
    others(data),
  ];
}

