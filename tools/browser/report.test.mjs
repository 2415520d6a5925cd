// What report.html shows in a browser, against report.json beside it, for a run of sample.feature. Each number is worked out
// here from the JSON anew; none of the program's code is used.
//
//   make report-test                             builds the program and runs this
//   TRYSQUARE=… CHROMIUM=… node --test           with this program and this browser

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const here = dirname(fileURLToPath(import.meta.url));
const program = process.env.TRYSQUARE;
const flags = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];
const found = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) => existsSync(path));
const executablePath = process.env.CHROMIUM ?? found;

let browser;
let folder;
let report;

before(async () => {
  assert.ok(program, 'TRYSQUARE does not name the program; `make report-test` sets it');
  assert.ok(executablePath, 'no chromium under /usr/bin; install it, or name one in CHROMIUM');
  const work = mkdtempSync(join(tmpdir(), 'trysquare-report-'));
  folder = join(work, 'out');
  cpSync(join(here, 'sample.feature'), join(work, 'sample.feature'));
  cpSync(join(here, '../../features/manifests'), join(work, 'manifests'), { recursive: true });
  const nginx = readFileSync(join(work, 'manifests/nginx.yaml'), 'utf8');
  writeFileSync(join(work, 'manifests/many.yaml'), nginx.replaceAll('nginx', 'many').replace('replicas: 10', 'replicas: 200'));
  const run = spawnSync(program, ['test', 'sample.feature', '--report', 'out', '--twice'], { cwd: work, encoding: 'utf8' });
  assert.equal(run.status, 1, `one of the sample scenarios fails, no more and no less:\n${run.stdout}${run.stderr}`);
  assert.match(run.stdout, /\nreport: out\/report\.html\n$/);
  // No scenario is skipped on the embedded backend, so a verdict is changed, and a run made to differ; the program draws
  // the page from that.
  const path = join(folder, 'report.json');
  report = JSON.parse(readFileSync(path, 'utf8'));
  const hostile = '</script><img src=x onerror=alert(1)>';
  const last = report.scenarios.length - 1;
  report.scenarios[last].verdict = { outcome: 'skipped', missing: `quota ${hostile}` };
  report.scenarios[last - 1].repeat = {
    ...report.scenarios[last - 1].repeat, identical: false, first_difference: `line 7 ${hostile}`,
  };
  report.summary = { ...report.summary, passed: 2, failed: 2, skipped: 1 };
  writeFileSync(path, JSON.stringify(report));
  execFileSync(program, ['report', folder]);
  browser = await chromium.launch({ executablePath, args: flags });
});

after(async () => {
  await browser?.close();
  if (folder) rmSync(dirname(folder), { recursive: true });
});

/** Opens the page; whatever it says on the console or asks of the network is remembered. */
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 1000 }, ...options });
  const page = await context.newPage();
  const complaints = [];
  const requests = [];
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('dialog', (dialog) => { complaints.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => requests.push(request.url()));
  const url = String(pathToFileURL(join(folder, 'report.html')));
  await page.goto(url);
  return { page, complaints, requests, url };
}

const verdictOf = (result) => {
  const differs = result.repeat && !result.repeat.identical;
  return differs || result.verdict.outcome === 'failed' ? 'failed' : result.verdict.outcome;
};

/** An instant as the page writes it. */
function instant(ms) {
  const seconds = Math.floor(ms / 1000);
  const tenths = Math.floor((ms % 1000) / 100);
  const two = (number) => String(number).padStart(2, '0');
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days) return `${days}d${two(hours)}h${two(minutes)}m`;
  if (hours) return `${hours}h${two(minutes)}m${two(seconds % 60)}s`;
  if (minutes) return `${minutes}m${two(seconds % 60)}.${tenths}s`;
  return `${seconds}.${tenths}s`;
}

const usd = (amount) => (amount >= 100 ? `$${amount.toFixed(2)}` : `$${amount.toFixed(4)}`);
const texts = (locator) => locator.evaluateAll((all) => all.map((one) => one.textContent.trim()));

test('the head shows the numbers of the run', async () => {
  const { page } = await open();
  const { passed, failed, skipped } = report.summary;
  assert.match(await page.locator('h1').innerText(), new RegExp(`${passed} passed, ${failed} failed, ${skipped} skipped`));
  assert.equal(await page.title(), `Trysquare: ${passed} passed, ${failed} failed, ${skipped} skipped`);
  const facts = await page.locator('header dl').innerText();
  for (const fact of [report.trysquare_version, report.scenarios[0].backend, report.started_at.slice(0, 10), 'Seed\n1']) {
    assert.ok(facts.includes(fact), `${fact} in ${facts}`);
  }
});

test('each scenario stands in the table with its verdict, rows, sentences and cost', async () => {
  const { page } = await open();
  const rows = page.locator('table.overview tr[data-scenario]');
  assert.equal(await rows.count(), report.scenarios.length);
  for (const [index, result] of report.scenarios.entries()) {
    const row = rows.nth(index);
    // The sign and the word: the colour alone would tell nothing to many.
    assert.match(await row.locator('.verdict').innerText(), new RegExp(`^[✓✕–] ${verdictOf(result)}$`));
    assert.equal(await row.locator('a').innerText(), result.scenario.name);
    const documented = result.scenario.tags.filter((tag) => tag.includes('.'));
    assert.deepEqual(await texts(row.locator('.rows code')), documented);
    const shown = await row.locator('.rows').innerText();
    for (const id of documented) {
      assert.ok(shown.includes(report.catalogue[id] ?? 'not in the catalogue'), `${id}: ${shown}`);
    }
    const [, wall, nodes, cost] = await texts(row.locator('td.number'));
    assert.equal(wall, `${result.wall_s.toFixed(2)}s`);
    assert.equal(nodes, String(result.chronicle.nodes.seen));
    const peak = Math.max(0, ...result.chronicle.cost.steps.map((step) => step.usd_per_hour));
    assert.equal(cost, peak > 0 ? `${usd(peak)}/h` : '–');
  }
});

test('each step stands with its times, the failed one and those not run are marked', async () => {
  const { page } = await open();
  await page.click('#expand');
  for (const [index, result] of report.scenarios.entries()) {
    const rows = page.locator(`#scenario-${index} > table.steps > tbody > tr`);
    assert.equal(await rows.count(), result.scenario.steps.length);
    for (const [number, step] of result.scenario.steps.entries()) {
      const [, at, took, text] = await texts(rows.nth(number).locator(':scope > td'));
      const span = result.chronicle.steps[number];
      assert.equal(at, span ? instant(span.began_ms) : '–');
      assert.equal(took, span ? instant(span.ended_ms - span.began_ms) : '–');
      const failed = result.verdict.outcome === 'failed' && number === result.chronicle.steps.length - 1;
      const remark = failed ? 'failed ' : span ? '' : 'not run ';
      assert.equal(text, `${remark}${step.keyword} ${step.text}`);
    }
  }
  assert.equal(await page.locator('tr.failed').count(), 1);
  assert.ok(await page.locator('tr.not-run').count() >= 1);
});

test('the timeline draws every pod, NodeClaim, node and instance, and the tables tell the same', async () => {
  const { page } = await open();
  await page.click('#expand');
  const kinds = { pod: 'pods', 'node-claim': 'node_claims', node: 'nodes', instance: 'instances' };
  for (const [index, result] of report.scenarios.entries()) {
    const body = page.locator(`#scenario-${index}`);
    for (const [kind, key] of Object.entries(kinds)) {
      const { seen, lanes, counts } = result.chronicle[key];
      const single = lanes.filter((lane) => !(lane.group in counts));
      const drawn = body.locator(`svg.timeline g[data-lane="${kind}"]`);
      assert.deepEqual((await drawn.evaluateAll((all) => all.map((one) => one.dataset.name))).sort(), single.map((lane) => lane.name).sort());
      const areas = await body.locator(`svg.timeline g[data-area="${kind}"]`).evaluateAll((all) => all.map((one) => [one.dataset.name, +one.dataset.peak]));
      const peak = (points) => Math.max(...points.map((point) => Object.values(point.phases).reduce((sum, one) => sum + one, 0)));
      assert.deepEqual(areas, Object.entries(counts).map(([name, points]) => [name, peak(points)]));
      if (Object.keys(counts).length === 0) assert.equal(single.length, seen, `${kind}: none is left out`);
      // Bars: one for each phase but the last of those that are gone.
      const bars = lanes.filter((lane) => single.includes(lane)).flatMap((lane) => lane.phases)
        .filter(({ phase }) => phase !== 'gone' && phase !== 'terminated');
      assert.equal(await drawn.locator(':scope > g > title').count(), bars.length);
    }
    const sections = Object.fromEntries((await texts(body.locator('table.facts caption'))).map((caption, at) => [caption.replace(/ \(\d+\)$/, ''), at]));
    const cells = async (caption) => body.locator('table.facts').nth(sections[caption]).locator('tbody tr')
      .evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));
    const { instances, pods, calls } = result.chronicle;
    const phases = (lane) => lane.phases.map(({ at_ms, phase }) => `${instant(at_ms)} ${phase}`).join(', ');
    if (instances.seen) {
      assert.deepEqual(await cells('Instances'), instances.lanes.map((lane) => [
        lane.name, lane.instance_type, lane.zone, lane.capacity_type, usd(lane.usd_per_hour), lane.state_reason ?? '–', phases(lane),
      ]));
    }
    if (pods.seen) {
      assert.deepEqual(await cells('Pods'), pods.lanes.map((lane) => [lane.name, lane.group, lane.node ?? '–', phases(lane)]));
    }
    if (calls.length) assert.equal((await cells('Calls to AWS')).length, calls.length);
  }
});

test('two quiet hours are one cut, whose length is told', async () => {
  const { page } = await open();
  await page.click('#expand');
  const index = report.scenarios.findIndex((result) => result.scenario.tags.includes('quiet'));
  const cuts = page.locator(`#scenario-${index} svg.timeline .cut`);
  assert.equal(await cuts.count(), 1);
  assert.match(await cuts.locator('text').textContent(), /1h59m|2h/);
  const [from, to] = await cuts.locator('rect').evaluate((one) => [+one.getAttribute('x'), +one.getAttribute('width')]);
  assert.ok(from > 214 && to < (1148 - 214) / 4, `${from} ${to}`);
});

test('bars and marks stand where the axis says', async () => {
  const { page } = await open();
  await page.click('#expand');
  // The scenario with a notice has an axis without a cut, so that every position can be worked out.
  const index = report.scenarios.findIndex((result) => result.scenario.name.startsWith('A notice'));
  const { chronicle } = report.scenarios[index];
  const svg = page.locator(`#scenario-${index} svg.timeline`);
  assert.equal(await svg.locator('.cut').count(), 0);
  const [left, right] = [214, 1148];
  const x = (ms) => left + ((right - left) * ms) / chronicle.ended_ms;
  for (const lane of chronicle.instances.lanes) {
    const bars = await svg.locator(`g[data-lane="instance"][data-name="${lane.name}"] rect:not(.stripes)`)
      .evaluateAll((all) => all.map((one) => [+one.getAttribute('x'), +one.getAttribute('width')]));
    const wanted = lane.phases.map(({ at_ms }, number) => [x(at_ms), x(lane.phases[number + 1]?.at_ms ?? chronicle.ended_ms) - x(at_ms)])
      .filter((_, number) => lane.phases[number].phase !== 'terminated');
    assert.equal(bars.length, wanted.length);
    bars.forEach((bar, number) => bar.forEach((value, part) => assert.ok(Math.abs(value - wanted[number][part]) < 0.2, `${bar} and ${wanted[number]}`)));
  }
  const count = async (shape) => (await svg.locator(`[data-marks="${shape}"]`).evaluateAll((all) => all.map((one) => +one.dataset.count))).reduce((sum, one) => sum + one, 0);
  assert.equal(await count('evict'), chronicle.evictions.length);
  assert.equal(await count('notice'), 1);
  assert.equal(await count('launch'), chronicle.calls.filter((call) => call.action === 'ec2:CreateFleet').length);
  assert.equal(await count('warning') + await count('normal'), chronicle.events.length);
  const costs = await svg.locator('[data-cost]').evaluateAll((all) => all.map((one) => +one.dataset.cost));
  assert.deepEqual(costs, chronicle.cost.steps.map((step) => step.usd_per_hour));
  assert.ok((await svg.textContent()).includes(`${usd(chronicle.cost.total_usd)} in all`));
});

test('no two labels of a timeline lie upon each other, and none leaves the drawing', async () => {
  const { page } = await open();
  await page.click('#expand');
  const overlaps = await page.locator('svg.timeline').evaluateAll((drawings) => drawings.flatMap((svg) => {
    const frame = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll('text')].map((text) => ({ text: text.textContent, box: text.getBoundingClientRect() }));
    const bad = boxes.filter(({ box }) => box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1)
      .map(({ text }) => `outside: ${text}`);
    boxes.forEach((one, at) => boxes.slice(at + 1).forEach((other) => {
      const [a, b] = [one.box, other.box];
      // Line boxes of neighbouring rows touch; letters do not before a third of a line is shared.
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > a.height / 3) bad.push(`${one.text} / ${other.text}`);
    }));
    return bad;
  }));
  assert.deepEqual(overlaps, []);
});

test('a failure is told in full, a difference and a skip with their reason', async () => {
  const { page } = await open();
  const index = report.scenarios.findIndex((result) => result.verdict.outcome === 'failed');
  const { verdict } = report.scenarios[index];
  const diagnosis = page.locator(`#scenario-${index} .diagnosis`);
  assert.ok(await diagnosis.isVisible(), 'a failed scenario is open');
  const [step, message, observed] = await texts(diagnosis.locator('dd'));
  assert.deepEqual([step, message, observed], [verdict.step, verdict.message, verdict.last_observed.trim()]);
  assert.equal(await diagnosis.locator('pre').textContent(), verdict.timeline.map((line) => `${line}\n`).join(''));
  const skipped = report.scenarios.findIndex((result) => result.verdict.outcome === 'skipped');
  const reason = await page.locator(`#scenario-${skipped} .notice-box`).innerText();
  assert.equal(reason, `Skipped: the backend lacks ${report.scenarios[skipped].verdict.missing}.`);
  const differing = report.scenarios.findIndex((result) => !result.repeat.identical);
  const repeat = await page.locator(`#scenario-${differing} .repeat`).innerText();
  assert.ok(repeat.includes('DIFFERENT') && repeat.includes(report.scenarios[differing].repeat.first_difference), repeat);
});

test('nothing that a scenario says becomes markup, nothing is said on the console, nothing is asked of the network', async () => {
  const { page, complaints, requests, url } = await open();
  await page.click('#expand');
  assert.equal(await page.locator('img').count(), 0);
  assert.equal(await page.locator('script').count(), 1);
  assert.deepEqual(complaints, []);
  assert.deepEqual(requests, [url]);
});

test('filters show what they say, and their count', async () => {
  const { page } = await open();
  const shown = async () => {
    const rows = await texts(page.locator('tr[data-scenario]:visible a'));
    assert.deepEqual(await texts(page.locator('article:visible h3')), rows, 'table and sections show the same');
    return rows;
  };
  const named = (wanted) => report.scenarios.filter(wanted).map((result) => result.scenario.name);
  assert.deepEqual(await shown(), named(() => true));
  await page.uncheck('input[value=passed]');
  assert.deepEqual(await shown(), named((result) => verdictOf(result) !== 'passed'));
  assert.equal(await page.innerText('#shown'), `3 of ${report.scenarios.length} scenarios`);
  await page.check('input[value=passed]');
  await page.fill('input[name=text]', 'SQS QUEUE MAKES');
  const sentence = (result) => result.scenario.tags.some((tag) => report.catalogue[tag]?.includes('SQS queue makes'));
  assert.deepEqual(await shown(), named(sentence));
  assert.equal((await shown()).length, 1);
  await page.fill('input[name=text]', '');
  await page.selectOption('select[name=tag]', 'quiet');
  assert.deepEqual(await shown(), named((result) => result.scenario.tags.includes('quiet')));
  await page.selectOption('select[name=tag]', '');
  await page.fill('input[name=text]', 'nothing reads like this');
  assert.deepEqual(await shown(), []);
  assert.equal(await page.locator('tr.feature:visible').count(), 0);
});

test('a link of the table opens its scenario', async () => {
  const { page } = await open();
  const index = report.scenarios.findIndex((result) => verdictOf(result) === 'passed');
  assert.equal(await page.locator(`#scenario-${index}`).isVisible(), false);
  await page.click(`tr[data-scenario="${index}"] a`);
  await page.locator(`#scenario-${index}`).waitFor({ state: 'visible' });
});

test('without scripts all is still there to read', async () => {
  const { page } = await open({ javaScriptEnabled: false });
  assert.equal(await page.locator('#filters').isVisible(), false);
  assert.equal(await page.locator('tr[data-scenario]:visible').count(), report.scenarios.length);
  const index = report.scenarios.findIndex((result) => verdictOf(result) === 'passed');
  await page.click(`article[data-scenario="${index}"] summary >> nth=0`);
  assert.ok(await page.locator(`#scenario-${index} svg.timeline`).isVisible());
});

for (const width of [320, 400, 760, 1400]) {
  test(`a screen of ${width} pixels needs no scrolling to the side`, async () => {
    const { page } = await open({ viewport: { width, height: 800 } });
    await page.click('#expand');
    await page.locator('details').evaluateAll((all) => all.forEach((one) => { one.open = true; }));
    const [content, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    assert.ok(content <= screen, `${content} > ${screen}`);
  });
}

test('text has the contrast that WCAG AA asks for, by day and by night', async () => {
  for (const colorScheme of ['light', 'dark']) {
    const { page } = await open({ colorScheme });
    await page.click('#expand');
    const poor = await page.evaluate(() => {
      const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
      const rgba = (colour) => {
        probe.clearRect(0, 0, 1, 1);
        probe.fillStyle = colour;
        probe.fillRect(0, 0, 1, 1);
        return [...probe.getImageData(0, 0, 1, 1).data];
      };
      const luminance = ([r, g, b]) => [r, g, b].map((part) => part / 255)
        .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
      const contrast = (a, b) => {
        const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
        return (high + 0.05) / (low + 0.05);
      };
      const ground = (element) => {
        for (let at = element; at; at = at.parentElement) {
          const colour = rgba(getComputedStyle(at).backgroundColor);
          if (colour[3] > 250) return colour;
        }
        return rgba(getComputedStyle(document.documentElement).backgroundColor);
      };
      const bad = new Set();
      const check = (element, colour, behind) => {
        const ratio = contrast(rgba(colour), behind);
        if (ratio < 4.5) bad.add(`${element.tagName} ${element.getAttribute('class')} ${element.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
      };
      const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const element = node.parentElement;
        if (!node.textContent.trim() || element.closest('script, style, title, desc, option')) continue;
        const style = getComputedStyle(element);
        if (element.closest('svg')) {
          // A word in a bar stands on the bar before it.
          const bar = element.getAttribute('class')?.startsWith('on-') ? element.parentElement.querySelector('rect') : null;
          check(element, style.fill, bar ? rgba(getComputedStyle(bar).fill) : ground(element.closest('svg')));
        } else {
          check(element, style.color, ground(element));
        }
      }
      return [...bad];
    });
    assert.deepEqual(poor, [], colorScheme);
  }
});

test('tables have headers, timelines have names, headings have an order', async () => {
  const { page } = await open();
  const faults = await page.evaluate(() => {
    const bad = [];
    document.querySelectorAll('table:not(.argument)').forEach((table) => {
      if (!table.querySelector('thead th[scope=col]')) bad.push(`no header: ${table.className}`);
    });
    const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);
    if (new Set(ids).size !== ids.length) bad.push('an id is used twice');
    document.querySelectorAll('svg.timeline').forEach((svg) => {
      const names = svg.getAttribute('aria-labelledby').split(' ').map((id) => document.getElementById(id)?.textContent);
      if (svg.getAttribute('role') !== 'img' || names.length !== 2 || !names.every(Boolean)) bad.push(`no name: ${names}`);
    });
    let last = 0;
    document.querySelectorAll('h1, h2, h3, h4').forEach((heading) => {
      const level = +heading.tagName[1];
      if (level > last + 1) bad.push(`${heading.tagName} after H${last}: ${heading.textContent}`);
      last = level;
    });
    return bad;
  });
  assert.deepEqual(faults, []);
});

test('on paper there are no filters and every scenario is open', async () => {
  const { page } = await open();
  await page.emulateMedia({ media: 'print' });
  assert.equal(await page.locator('#filters').isVisible(), false);
  // Of the style sheet's own, without the script's event.
  for (const index of report.scenarios.keys()) {
    assert.ok(await page.locator(`#scenario-${index} table.steps`).isVisible(), `scenario ${index}`);
  }
  const pdf = await page.pdf({ preferCSSPageSize: true });
  assert.ok(pdf.length > 10_000);
});
