// The page: sections in order, theme, printing.

import { absent, h } from './dom.js';
import { load } from './data.js';
import { drawNew, redrawAll, tipElement } from './plot.js';
import { figures, findings, header, verdict } from './overview.js';
import { hasSomething, heatmap, hiddenMeasures } from './heatmap.js';
import { inside } from './inside.js';
import { ranks } from './ranks.js';
import { search } from './search.js';
import { stepLengths } from './steps.js';
import { waits } from './waits.js';
import { curve, scatter } from './buckets.js';
import { stragglers } from './stragglers.js';
import { timeline } from './timeline.js';
import { whatIf } from './whatif.js';
import { collectives, facts, trust } from './simple.js';

const root = document.documentElement;

function themeButton() {
  const dark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches);
  const button = h('button', { type: 'button', class: 'small', id: 'theme', onclick: () => {
    root.dataset.theme = dark() ? 'light' : 'dark';
    label();
    redrawAll();
  } });
  const label = () => (button.textContent = dark() ? 'light' : 'dark');
  label();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { label(); redrawAll(); });
  return button;
}

// Paper is white, whatever the screen is, and has all that the screen shows only later.
function preparePrinting(finish) {
  let before, opened = [];
  addEventListener('beforeprint', () => {
    finish();
    before = root.dataset.theme;
    root.dataset.theme = 'light';
    // As wide as the paper, so that plots are drawn for it and not cut.
    root.dataset.paper = '';
    opened = [...document.querySelectorAll('details:not([open]):not(.behind)')];
    for (const details of opened) details.open = true;
    redrawAll();
  });
  addEventListener('afterprint', () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
    delete root.dataset.paper;
    for (const details of opened) details.open = false;
    redrawAll();
  });
}

// One section that fails must not take the others with it.
function guarded(make) {
  try {
    return make();
  } catch (error) {
    console.error(error);
    return [absent(`This section could not be drawn: ${error.message}`)];
  }
}

const later = () => new Promise((done) => setTimeout(done));
// After the next frame; a page in the background has none.
const shown = () => (document.hidden ? later() : new Promise((done) => requestAnimationFrame(() => setTimeout(done))));

async function main() {
  const page = document.getElementById('page'), plain = document.getElementById('plain');
  plain.hidden = true;
  // The browser would go back to a place of a page that is not as long yet.
  history.scrollRestoration = 'manual';
  try {
    const { data, unpack, unpackBut } = load();
    await unpack('ranks');
    const lanes = { open: () => {} };
    let showRank = () => {};
    const sections = [
      ['findings', 'What to fix', () => findings(data)],
      ['heatmap', 'Ranks and steps', () => [heatmap(data, (step) => lanes.open(step)), stepLengths(data, (step) => lanes.open(step))]],
      ['ranks', 'Where a step goes', () => {
        const made = ranks(data);
        showRank = made.show;
        return made.section;
      }],
      ['buckets', 'Transfer time and bucket size', () => [h('div', { class: 'two' }, h('div', {}, h('h3', {}, 'Transfer time against size'), scatter(data)), h('div', {}, h('h3', {}, 'Step time against bucket cap'), curve(data)))]],
      ['stragglers', 'Stragglers', () => [stragglers(data), waits(data)]],
      ['timeline', 'Timeline of a step', () => {
        const made = timeline(data);
        lanes.open = made.open;
        return made.section;
      }],
      ['inside', 'Kernels, operators, memory', () => inside(data)],
      ['whatif', 'What if', () => whatIf(data)],
      ['collectives', 'Collectives', () => collectives(data)],
      ['trust', 'How far to trust this', () => trust(data)],
      ['facts', 'The run', () => facts(data)],
    ];
    const shells = sections.map(([id, title]) => h('section', { id, 'aria-labelledby': id + '-title' }, h('h2', { id: id + '-title' }, title)));
    const go = (section, where) => {
      if (where?.rank !== undefined) showRank(where.rank);
      const found = where?.finding !== undefined ? document.querySelectorAll('.findings > li')[where.finding] : document.getElementById(section);
      found?.scrollIntoView();
    };
    page.append(
      h('a', { class: 'skip', href: '#findings' }, 'Skip to the findings'),
      h('header', {}, h('div', {}, header(data)), themeButton()),
      h('nav', { 'aria-label': 'Sections' }, sections.map(([id, title]) => h('a', { href: '#' + id }, title)), search(data, go)),
      h('main', {},
        data.incomplete ? h('p', { class: 'warning', role: 'note' }, 'The data of this run is incomplete or doubtful: see ', h('a', { href: '#trust' }, 'how far to trust this'), '.') : '',
        verdict(data), figures(data), shells),
      tipElement);
    let next = 0;
    const fillNext = () => {
      const shell = shells[next], [, , make] = sections[next++];
      shell.append(...[guarded(make)].flat(Infinity).filter(Boolean));
    };
    const inSight = (element) => element.getBoundingClientRect().top < innerHeight;
    const nextInSight = () => next < shells.length && inSight(shells[next]);
    // What is in sight is on the screen before the data of the rest is unpacked. That is then made piece by piece: the
    // page answers its reader meanwhile.
    fillNext();
    if (nextInSight()) {
      await Promise.all([unpack('step_lengths'), data.heatmap ? unpackBut('heatmap', hiddenMeasures(data.heatmap)) : null]);
      if (!hasSomething(data.heatmap)) await unpack('heatmap');
      fillNext();
    }
    if (nextInSight()) await unpack();
    while (nextInSight()) fillNext();
    drawNew(inSight);
    await shown();
    // This and `ready`, when all is drawn, are for tests and bench/report.
    document.body.dataset.painted = Math.round(performance.now());
    await unpack();
    preparePrinting(() => {
      while (next < shells.length) fillNext();
      drawNew();
    });
    for (drawNew(); next < shells.length; drawNew()) {
      await later();
      if (next < shells.length) fillNext(); // Or printing has.
    }
    // The page was too short to go there.
    if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
    document.body.dataset.ready = Math.round(performance.now());
  } catch (error) {
    // An old browser, or a page that was cut: the summary as text is in it, too.
    console.error(error);
    page.replaceChildren(h('p', { class: 'warning' }, `The plots cannot be shown: ${error.message}. It takes a browser of 2023 or later. The summary:`));
    plain.hidden = false;
  }
}

main();
