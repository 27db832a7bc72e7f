// The verdict, five figures, and what to fix.

import { absent, h, name } from './dom.js';
import { count, duration, interval, percent, plural, share } from './format.js';
import { csvButton, scrolling } from './table.js';

const exposed = (s) => s.exposed_wait_ns + s.exposed_transfer_ns + s.exposed_unsplit_ns;
export const stepLength = (s) =>
  s.step_ns_mean !== null ? s.step_ns_mean : s.compute_ns === null ? null : s.compute_ns + s.blocked_ns + exposed(s) + s.exposed_copy_ns + s.idle_ns;

export function header(data) {
  const { run } = data.analysis;
  const parts = [];
  if (run.ranks_sharing_cores > 0) parts.push(`${run.ranks_sharing_cores} ranks share ${plural(run.shared_cores, 'core')}`);
  parts.push((run.ranks_expected > run.ranks ? `${count(run.ranks)} of ${plural(run.ranks_expected, 'rank')}` : plural(run.ranks, 'rank')) +
    (run.nodes === null ? '' : ` on ${plural(run.nodes, 'node')}`));
  const { window } = run;
  if (window.first_step !== null) parts.push(window.first_step === window.last_step ? `step ${window.first_step}` : `steps ${window.first_step}–${window.last_step} (${count(run.steps)})`);
  else if (window.span_ns !== null) parts.push(`${duration(window.span_ns)} recorded`);
  parts.push(...run.gpus);
  return [
    h('h1', {}, name(data.job || 'Lockstep report')),
    h('p', { class: 'sub' }, parts.map((part, i) => [i ? ' · ' : '', name(part)]), ' · ', name(data.run_name)),
  ];
}

export function verdict(data) {
  const { analysis } = data;
  const bad = analysis.hang.length > 0 || analysis.findings.length > 0 || analysis.suspicious || data.unrecorded || data.incomplete;
  const hang = analysis.hang.length > 0 && h('pre', { class: 'hang' }, name(analysis.hang.join('\n')));
  return h('div', { class: 'verdict' + (bad ? ' bad' : ''), role: 'region', 'aria-label': 'verdict' },
    hang, h('p', { class: 'first' }, name(analysis.verdict)), analysis.remarks.map((remark) => h('p', {}, name(remark))));
}

function overlapFigure(data) {
  const s = data.analysis.summary;
  const comm = data.ranks.comm_ns.reduce((sum, ns) => sum + ns, 0);
  if (data.unrecorded) return ['unknown', s.compute_ns === null ? 'what its GPUs did is not recorded' : 'its communication is not recorded'];
  if (data.wait_only) return ['0 %', 'no overlap is known: communication moved only in Wait'];
  if (s.overlap_low === null && s.overlap_high === null) return [comm > 0 ? 'unknown' : 'none', comm > 0 ? 'of communication hidden' : 'no communication'];
  const low = s.overlap_low ?? 0, high = s.overlap_high ?? low;
  return high - low < 0.02 ? [percent(low), 'of communication hidden under compute']
    : [`${percent(low)} – ${percent(high)}`, 'of communication hidden under compute'];
}

// A number and its unit stay on one line.
const together = (words) => words.replace(/(\d) (?=(%|[num]?s|min)(?![a-z]))/g, '$1\u00a0');

export function figures(data) {
  const s = data.analysis.summary, { trust, run } = data.analysis;
  const of = s.of === 'mean_step' ? 'step' : 'rank', whole = stepLength(s), known = whole !== null;
  const marks = [['median', s.job_step_ns_median], ...(s.job_step_ns_p10 === null ? [['shortest', s.job_step_ns_min]] : [['p10', s.job_step_ns_p10]]),
    ...(s.job_step_ns_p99 === null ? [] : [['p99', s.job_step_ns_p99]]), ['longest', s.job_step_ns_max]];
  const spread = s.job_step_ns_max !== null ? ` (${marks.map(([name, ns]) => `${name} ${duration(ns)}`).join(' · ')})` : '';
  const clock = run.ranks < 2 ? ['one rank', 'no clocks to compare']
    : trust.clock_error_ns_max === null ? ['unknown', 'clock error between ranks']
      : ['± ' + duration(trust.clock_error_ns_max), 'clock error between ranks, at most'];
  const cells = [
    s.of === 'mean_step' ? [duration(whole), 'mean step' + spread] : [duration(known ? whole : null), 'analysed, mean over ranks: no steps'],
    overlapFigure(data),
    [known ? duration(exposed(s)) : 'unknown', `exposed communication per ${of}` + (known ? `, ${share(exposed(s), whole)}` : '')],
    [known ? duration(s.exposed_wait_ns) : 'unknown', `of it waiting for other ranks` + (known ? `, ${share(s.exposed_wait_ns, whole)}` : '')],
    clock,
  ];
  return h('div', { class: 'figures' }, cells.map(([value, what]) => h('div', {}, h('b', {}, value), h('span', {}, together(what)))));
}

function price(finding, whole) {
  const most = finding.upper_bound ? '≤ ' : '';
  if (finding.of_step_ns !== null) whole = finding.of_step_ns;
  if (finding.saves_ns_per_step !== null)
    return [most + duration(finding.saves_ns_per_step), share(finding.saves_ns_per_step, whole), finding.saves_ns_per_step / whole];
  if (finding.saves_share !== null) return [most + percent(finding.saves_share), 'of the time', finding.saves_share];
  return ['no price', '', 0];
}

function rowsBehind(finding, number) {
  const { columns, rows, names } = finding.explain;
  if (!rows.length) return null;
  const csvColumns = columns.map((key, c) => ({ key, value: (r) => rows[r][c] }));
  if (names) csvColumns.unshift({ key: 'name', value: (r) => names[r] });
  return h('details', {}, h('summary', {}, `${plural(rows.length, 'row')} behind it`),
    scrolling(`rows behind finding ${number}`, h('table', {},
      h('thead', {}, h('tr', {}, names ? h('th', { scope: 'col' }, 'of') : null, columns.map((column) => h('th', { class: 'n', scope: 'col' }, column)))),
      h('tbody', {}, rows.map((row, i) => h('tr', {}, names ? h('td', {}, name(names[i] ?? '')) : null,
        row.map((value, c) => h('td', { class: 'n' }, columns[c].endsWith('_ns') ? duration(value) : count(value)))))))),
    csvButton(`finding-${number}`, csvColumns, rows.length));
}

export function findings(data) {
  const { analysis } = data, whole = stepLength(analysis.summary);
  if (!analysis.findings.length) return [absent('No finding: nothing that this analysis checks costs enough to be listed. What it could not check is under Trust.')];
  const within = (f) => f.saves_interval_ns && f.saves_ns_per_step !== null
    ? h('span', { class: 'dim' }, interval(...f.saves_interval_ns)) : null;
  return [
    h('ol', { class: 'findings' }, analysis.findings.map((f, i) => {
      const [value, part, fraction] = price(f, whole);
      const bar = h('div', { class: 'bar', 'aria-hidden': 'true' }, h('i'));
      bar.firstChild.style.width = Math.max(0, Math.min(1, fraction)) * 100 + '%';
      return h('li', { 'data-finding': f.id },
        h('div', { class: 'what' },
          h('h3', {}, h('span', { class: 'kind' }, f.id.split('.')[0]), ' ', name(f.headline)),
          h('p', {}, name(f.evidence)),
          h('p', { class: 'action' }, '→ ', name(f.action)),
          f.then ? h('p', { class: 'dim' }, 'then limited by: ', name(f.then)) : null,
          rowsBehind(f, i + 1)),
        h('div', { class: 'price' }, h('b', {}, value), h('span', {}, part), bar, within(f),
          f.replayed ? h('span', { class: 'dim' }, 'from replay') : null));
    })),
    analysis.additivity ? h('p', { class: 'note' }, name(analysis.additivity)) : null,
  ];
}

