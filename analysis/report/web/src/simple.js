// Collectives, trust, and the facts of the run: tables and sentences.

import { absent, code, h, name } from './dom.js';
import { bandwidth, bytes, count, duration, number, percent, plural } from './format.js';
import { bandwidths } from './bandwidths.js';
import { maximum } from './data.js';
import { behind, csvButton, scrolling, table } from './table.js';

export function collectives(data) {
  const { all, rows } = data.collectives;
  if (!rows.length) {
    return [absent(data.unrecorded ? [name(data.unrecorded)] : data.ranks.rank.length < 2
      ? 'The run has one rank, so there is no communication.'
      : 'No collective operation was recorded. Lockstep sees MPI (lockstep run under mpirun) and NCCL (a GPU job); other backends are not recorded.')];
  }
  const numeric = (key, title, text) => ({ key, title, numeric: true, value: (i) => rows[i][key], text: (i) => (rows[i][key] === null ? '-' : text(rows[i][key])) });
  const columns = [
    { key: 'op', title: 'operation', value: (i) => rows[i].op, text: (i) => rows[i].op },
    { key: 'group', title: 'ranks', value: (i) => rows[i].group, text: (i) => rows[i].group },
    numeric('members', 'members', count), numeric('count', 'count', count), numeric('bytes', 'bytes', bytes),
    numeric('transfer_ns_median', 'transfer', duration), numeric('wait_ns_median', 'mean wait', duration),
    numeric('longest_wait_ns_median', 'longest wait', duration), numeric('longest_wait_rank', 'on rank', String),
    numeric('algbw', 'algorithm bandwidth', bandwidth), numeric('busbw', 'bus bandwidth', bandwidth),
    numeric('censored', 'end unknown', count), numeric('partial', 'members missing', count), numeric('grouped', 'share a kernel', count),
  ].filter((column) => !['censored', 'partial', 'grouped'].includes(column.key) || rows.some((row) => row[column.key] > 0));
  return [
    h('p', { class: 'note' }, 'Medians over instances: of the transfer, what remains after the last rank arrived, in the middle of the ranks; of the wait, its mean over the ranks, and that of the rank that waits longest. No transfer is given for operations whose end is uncertain (non-blocking, moved only now and then) or that share a kernel. Bandwidths are of one transfer: of transfers that share the network at the same time, each has its part, and the network moves more than either says.'),
    table(columns, rows.length), csvButton('collectives', columns, rows.length),
    all > rows.length ? h('p', { class: 'note' }, `The ${count(rows.length)} that cost most of ${count(all)}; all are in analysis.json.`) : null,
    bandwidths(data),
    messages(data),
  ];
}

function messages(data) {
  const { p2p } = data.analysis;
  if (!p2p) return null;
  const rows = p2p.pairs;
  const column = (key, title, text) => ({ key, title, numeric: true, value: (i) => rows[i][key], text: (i) => text(rows[i][key]) });
  const columns = [column('source', 'from', String), column('destination', 'to', String), column('messages', 'messages', count), column('bytes', 'bytes', bytes),
    column('late_sender_ns', 'destination waited', duration), column('late_receiver_ns', 'source waited', duration), column('unmatched', 'unmatched', count)];
  return [h('h3', {}, 'Messages from rank to rank'),
    h('p', { class: 'note' }, `${plural(p2p.messages, 'message')}, ${bytes(p2p.bytes)} between ${plural(p2p.pair_count, 'pair')} of ranks` +
      (p2p.truncated || p2p.pair_count > rows.length ? `; the ${count(rows.length)} heaviest.` : '.')),
    table(columns, rows.length, { sortBy: 'bytes' }), csvButton('messages', columns, rows.length)];
}

const kMethods = ['reference', 'same clock (one node)', 'measured by ping-pong bursts', 'from corridors of collectives', 'not related', 'wall clock'];

export function trust(data) {
  const { trust: t, run, replay } = data.analysis, { clock } = data.ranks;
  const whole = (text) => h('span', { class: 'whole' }, text);
  const row = (what, value, remark) => h('tr', {}, h('th', { scope: 'row' }, what), h('td', { class: 'n' }, value), h('td', {}, remark));
  const delays = data.ranks.charge_ns.filter((ns) => !Number.isNaN(ns)), lasts = data.ranks.last.filter((v) => !Number.isNaN(v));
  const typical = lasts.reduce((a, b) => a + b, 0) ? delays.reduce((a, b) => a + b, 0) / lasts.reduce((a, b) => a + b, 0) : null;
  const ratio = typical && t.clock_error_ns_max ? `; a last arriver comes ${duration(Math.round(typical))} after the one before it on average, ${number(typical / t.clock_error_ns_max, 2)} times that` : '';
  const rows = [
    row('events', count(t.events), `${count(t.dropped)} dropped` + (t.dropped ? ': rings were full' : '')),
    row('clocks', run.ranks < 2 ? '-' : t.clock_error_ns_max === null ? 'unknown' : [whole(`± ${duration(t.clock_error_ns_p50)} /`), ' ', whole(`± ${duration(t.clock_error_ns_max)}`)],
      run.ranks < 2 ? 'one rank: nothing to relate' : t.clock_error_ns_max === null ? 'the error could not be bounded: comparisons across ranks are not safe' : `median / largest error of a rank's clock${ratio}`),
    row('collectives', count(t.collectives), `${count(t.unmatched_collectives)} unmatched · ${count(t.mismatched_collectives)} contradictory · ${plural(t.clock_violations, 'clock violation')}`),
    row('overhead', t.overhead_fraction === null ? 'unknown' : percent(t.overhead_fraction), t.overhead_fraction === null ? 'not measured in this run' : 'of the run\'s time spent in recording'),
    row('agent', t.agent_cpu_fraction === null ? duration(t.agent_cpu_ns) : percent(t.agent_cpu_fraction), t.agent_cpu_ns === null ? 'not recorded (imported traces have none)' : t.agent_cpu_fraction === null ? 'CPU time of Lockstep\'s own processes; the application used less than a second' : 'CPU time of Lockstep\'s own processes, of the application\'s'),
    row('replay', replay.skipped !== null || replay.self_error === undefined ? 'none' : percent(replay.self_error),
      replay.skipped !== null || replay.self_error === undefined ? name(replay.skipped ?? 'nothing was replayed') : `median distance of replayed steps from recorded ones (${plural(replay.steps, 'step')})`),
  ];
  const windows = run.window.windows;
  const parts = [scrolling('trust', h('table', { class: 'told' }, h('tbody', {}, rows)))];
  if (run.window.recording || windows.length)
    parts.push(h('p', { class: 'note' }, 'Recorded: ', name(run.window.recording ?? 'all'),
      windows.length > 1 ? `; ${count(windows.length)} windows` : '', windows.some((w) => w.cut) ? '; a window was cut short' : '',
      run.window.outside_steps ? `; ${plural(run.window.outside_steps, 'step')} that only some ranks recorded are left out` : '', '.'));
  parts.push(h('h3', {}, 'Losses'));
  if (!data.losses.length) parts.push(h('p', { class: 'note' }, 'None: all that was to be recorded is there.'));
  else parts.push(h('ul', { class: 'losses' }, data.losses.map((loss) => h('li', { class: loss.data_loss ? 'loss' : '' },
    h('b', {}, loss.data_loss ? 'data lost: ' : 'notice: '), name(loss.sentence), `: ${count(loss.count)}`, loss.ranks ? ` (rank ${loss.ranks})` : '',
    loss.details.map((detail) => [' · ', name(detail)]), loss.details_left_out ? ` · ${count(loss.details_left_out)} more in analysis.json` : '',
    loss.remedy ? h('div', { class: 'action' }, '→ ', name(loss.remedy)) : null))));
  if (data.analysis.skipped.length)
    parts.push(h('h3', {}, 'What could not be looked at'), h('ul', {}, data.analysis.skipped.map((text) => h('li', {}, name(text)))));
  if (run.ranks > 1 && clock.error_ns.length) {
    const method = (r) => (Number.isNaN(clock.method[r]) ? 'unknown' : kMethods[clock.method[r]] ?? 'unknown');
    const worst = maximum(clock.error_ns.filter((ns) => !Number.isNaN(ns)));
    parts.push(h('h3', {}, 'Clocks, rank by rank'),
      h('p', { class: 'note' }, Number.isFinite(worst) ? `Of two ranks' times the errors add up: at most ± ${duration(2 * worst)} between any two in the middle of the window.` : 'No error is known.'),
      behind('clocks', [
        { key: 'rank', title: 'rank', numeric: true, value: (r) => data.ranks.rank[r], text: (r) => String(data.ranks.rank[r]) },
        { key: 'node', title: 'node', value: (r) => data.ranks.nodes[data.ranks.node[r]], text: (r) => data.ranks.nodes[data.ranks.node[r]] },
        { key: 'clock_error_ns', title: 'error', numeric: true, value: (r) => clock.error_ns[r], text: (r) => (Number.isNaN(clock.error_ns[r]) ? 'unknown' : '± ' + duration(clock.error_ns[r])) },
        { key: 'method', title: 'related by', value: method, text: method },
      ], data.ranks.rank.length));
  }
  return parts;
}

export function facts(data) {
  const { run, lockstep_version: version, gpus } = data.analysis;
  const rows = [
    ['command', run.command && code(name(run.command))],
    ['run', name(data.run_name)],
    ['run id', run.run_id && name(run.run_id)],
    ['ranks', `${count(run.ranks)} of ${count(run.ranks_expected)}${run.nodes === null ? '' : ` on ${plural(run.nodes, 'node')}`}`],
    ['missing ranks', run.ranks_missing.length ? run.ranks_missing.slice(0, 200).join(', ') + (run.ranks_missing.length > 200 ? ' …' : '') : null],
    ['not recorded by request', run.ranks_left_out.length ? run.ranks_left_out.slice(0, 200).join(', ') : null],
    ['ended early', run.endings.length ? h('ul', {}, run.endings.map((text) => h('li', {}, name(text)))) : run.ranks_ended_early.length ? run.ranks_ended_early.join(', ') : null],
    ['steps', `${count(run.steps)} complete` + (run.warmup_steps ? `, ${count(run.warmup_steps)} of warm-up` : '') + (run.incomplete_steps ? `, ${count(run.incomplete_steps)} incomplete` : '')],
    ['analysed', duration(run.window.span_ns)],
    ['kernels classified by', run.gpu_ranks ? name(run.classes) : null],
    ['GPUs', run.gpu_ranks ? [`${plural(run.gpu_ranks, 'rank')} with GPU work`, run.gpus.map((gpu) => [', ', name(gpu)])] : 'no GPU work recorded'],
    ['CUDA driver', run.cuda_driver_version && name(String(run.cuda_driver_version))],
    ['CUPTI', run.cupti_version && name(String(run.cupti_version))],
    ['NCCL plug-in', run.nccl_plugin && name(run.nccl_plugin)],
    ['cores', run.ranks_sharing_cores ? `${run.ranks_sharing_cores} ranks share ${plural(run.shared_cores, 'core')}: the timings do not apply to a run with a core per rank` : null],
    ['made by', `lockstep ${version}`],
  ];
  const parts = [scrolling('the run', h('table', {}, h('tbody', {}, rows.filter(([, value]) => value).map(([what, value]) =>
    h('tr', {}, h('th', { scope: 'row' }, what), h('td', {}, value))))))];
  if (gpus.length) {
    const column = (key, title, text) => ({ key, title, numeric: true, value: (i) => gpus[i][key], text: (i) => (gpus[i][key] === null ? '-' : text(gpus[i][key])) });
    const columns = [column('rank', 'rank', String), column('device', 'GPU', String), { key: 'name', title: 'name', value: (i) => gpus[i].name, text: (i) => gpus[i].name ?? '-' },
      ...Object.keys(gpus[0]).filter((key) => typeof gpus[0][key] === 'number' && !['rank', 'device'].includes(key)).map((key) => column(key, key.replaceAll('_', ' '), count))];
    parts.push(h('h3', {}, 'Readings of the GPUs\' sensors'), table(columns, gpus.length), csvButton('gpus', columns, gpus.length),
      data.analysis.gpu_count > gpus.length ? h('p', { class: 'note' }, `${count(gpus.length)} of ${count(data.analysis.gpu_count)}; all are in analysis.json.`) : null);
  }
  return parts;
}
