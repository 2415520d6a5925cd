// What conformance.html shows in a browser, against conformance.json beside it and the catalogue. The runs it is made of are
// written here; each number is worked out from the JSON anew, and none of the program's code is used.
//
//   make report-test                             builds the program and runs this
//   TRYSQUARE=… CHROMIUM=… node --test           with this program and this browser

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
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

const hostile = '</script><img src=x onerror=alert(1)>';
const ids = readFileSync(join(here, '../../features/behaviours.yaml'), 'utf8').match(/(?<=^- id: ).+$/gm);
const [drift] = ids.filter((id) => id === 'disruption.drift-ca-bundle');
const words = {
  passed: '✓ passed', failed: '✕ failed', differs: '≠ differs by design', skipped: '– skipped', not_run: '○ not run',
  not_covered: '· not covered',
};

let browser;
let work;
let folder;
let report;

/** A run's report.json: a scenario for each of the rows, with its verdict. */
function leave(name, controller, backend, rows) {
  const scenarios = Object.entries(rows).map(([id, verdict], index) => ({
    scenario: {
      feature: 'F', name: `Shows ${id} ${verdict.title ?? ''}`, path: 'features/x.feature', line: index + 1, tags: [id],
      steps: [{ keyword: 'Then', text: 'no NodeClaim exists', line: 9, docstring: null, table: [] }],
    },
    backend, controller, seed: 1, verdict: { ...verdict, title: undefined }, virtual_s: 61.5, wall_s: 0.25,
    journal: { sha256: '', entries: 7, calls: {} },
  }));
  const of = (outcome) => scenarios.filter((result) => result.verdict.outcome === outcome).length;
  const summary = { passed: of('passed'), failed: of('failed'), skipped: of('skipped'), virtual_s: 1, wall_s: 1 };
  mkdirSync(join(work, name, 'journals'), { recursive: true });
  scenarios.forEach((_, index) => writeFileSync(join(work, name, `journals/${String(index).padStart(4, '0')}-1.jsonl`), '{}\n'));
  writeFileSync(join(work, name, 'report.json'), JSON.stringify({
    schema_version: 1, trysquare_version: '0.1.0', started_at: '2026-01-02T03:04:05Z', command: ['test'], summary, catalogue: {}, scenarios,
  }));
  run(0, 'report', name);
}

function run(status, ...words) {
  const ended = spawnSync(program, words, { cwd: work, encoding: 'utf8' });
  assert.equal(ended.status, status, `${words.join(' ')}:\n${ended.stdout}${ended.stderr}`);
}

before(async () => {
  assert.ok(program, 'TRYSQUARE does not name the program; `make report-test` sets it');
  assert.ok(executablePath, 'no chromium under /usr/bin; install it, or name one in CHROMIUM');
  work = mkdtempSync(join(tmpdir(), 'trysquare-conformance-'));
  const passed = { outcome: 'passed' };
  const skipped = { outcome: 'skipped', missing: `clock ${hostile}` };
  const failed = (message) => ({
    outcome: 'failed', step: 'features/x.feature:9: Then no NodeClaim exists', message, last_observed: 'one',
    timeline: Array.from({ length: 40 }, (_, line) => `line ${line} ${hostile}`), title: hostile,
  });
  leave('ours', 'ours', 'embedded', { [ids[0]]: passed, [ids[1]]: passed, [ids[2]]: failed('no'), [drift]: failed('no drift'), [ids[70]]: skipped });
  leave('upstream', 'upstream', 'apiserver', { [ids[0]]: passed, [ids[1]]: failed(`not so ${hostile}`), [drift]: failed('no drift either') });
  leave('idle', '/opt/idle', 'embedded', { [ids[0]]: failed('nothing is done'), [ids[1]]: passed });
  const stuck = { ...failed(`etcd is not found ${hostile}`), step: 'the start of the backend', title: '' };
  leave('stuck', '/opt/other/karpenter', 'apiserver', { [ids[0]]: stuck });
  run(3, 'conformance', '--run', 'ours', '--run', 'upstream', '--run', 'stuck', '--idle', 'idle', '--report', 'out');
  folder = join(work, 'out');
  report = JSON.parse(readFileSync(join(folder, 'conformance.json'), 'utf8'));
  browser = await chromium.launch({ executablePath, args: flags });
});

after(async () => {
  await browser?.close();
  if (work) rmSync(work, { recursive: true });
});

async function open(options = {}, hash = '') {
  const context = await browser.newContext({ viewport: { width: 1400, height: 1000 }, ...options });
  const page = await context.newPage();
  const complaints = [];
  const requests = [];
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('dialog', (dialog) => { complaints.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => requests.push(request.url()));
  const url = String(pathToFileURL(join(folder, 'conformance.html')));
  await page.goto(url + hash);
  return { page, complaints, requests, url };
}

const texts = (locator) => locator.evaluateAll((all) => all.map((one) => one.textContent.trim()));
const title = (column) => `${column.controller} on ${column.backend}`;

test('the document has every row of the catalogue, and the outcomes that the runs tell', () => {
  assert.deepEqual(report.rows.map((row) => row.id), ids);
  const of = (id) => report.rows.find((row) => row.id === id).cells.map((cell) => cell.outcome);
  assert.deepEqual(report.columns.map(title), ['ours on embedded', 'upstream on apiserver', '/opt/other/karpenter on apiserver']);
  assert.deepEqual(of(ids[0]), ['passed', 'passed', 'not_run']);
  assert.deepEqual(of(ids[1]), ['passed', 'failed', 'not_run']);
  assert.deepEqual(of(drift), ['differs', 'failed', 'not_run'], 'the difference is ours, and excuses nobody else');
  assert.deepEqual(of(ids[70]), ['skipped', 'not_run', 'not_run']);
  assert.deepEqual(of(ids[356]), ['not_covered', 'not_covered', 'not_covered']);
});

test('each row stands with its sentence, level and outcomes', async () => {
  const { page } = await open();
  const shown = await page.locator('tr[data-row]').evaluateAll((all) => all.map((row) => ({
    id: row.querySelector('th > code').textContent,
    says: row.querySelector('.says').textContent,
    level: row.querySelector('.level').textContent,
    // The sign and the word: the colour alone would tell nothing to many.
    cells: [...row.querySelectorAll('td.cell > .verdict')].map((cell) => cell.textContent),
  })));
  assert.deepEqual(shown, report.rows.map((row) => ({
    id: row.id, says: row.says, level: row.level, cells: row.cells.map((cell) => words[cell.outcome]),
  })));
});

test('the numbers of columns, groups and levels are those of the rows', async () => {
  const { page } = await open();
  const count = (rows, column, outcome) => rows.filter((row) => row.cells[column].outcome === outcome).length;
  for (const [index, column] of report.columns.entries()) {
    const card = page.locator('.card').nth(index);
    assert.equal(await card.locator('h3').innerText(), title(column));
    for (const outcome of Object.keys(words)) {
      assert.equal(await card.locator(`li[data-outcome=${outcome}] b`).innerText(), String(count(report.rows, index, outcome)));
    }
  }
  for (const key of ['group', 'level']) {
    const names = [...new Set(report.rows.map((row) => row[key]))];
    assert.equal(await page.locator(`tr[data-${key}]:not([data-row])`).count(), names.length);
    for (const name of names) {
      const members = report.rows.filter((row) => row[key] === name);
      const [rows, covered, ...cells] = await texts(page.locator(`table.parts tr[data-${key}="${name}"] td`));
      assert.deepEqual([+rows, +covered], [members.length, members.filter((row) => row.covered).length]);
      report.columns.forEach((_, index) => {
        const present = Object.keys(words).filter((outcome) => count(members, index, outcome) > 0);
        assert.equal(cells[index], present.map((outcome) => `${count(members, index, outcome)} ${words[outcome].slice(2)}`).join(', '));
      });
    }
  }
});

test('evidence is one click away, and every link leads to a file', async () => {
  const { page } = await open();
  let seen = 0;
  for (const row of report.rows.filter((one) => one.cells.some((cell) => cell.scenarios?.length))) {
    for (const [index, cell] of row.cells.entries()) {
      if (!cell.scenarios?.length) continue;
      const links = await page.locator(`tr[data-row="${row.id}"] td.cell`).nth(index).locator('.links a')
        .evaluateAll((all) => all.map((link) => link.getAttribute('href')));
      assert.deepEqual(links, [cell.scenarios[0].timeline, cell.scenarios[0].journal]);
      for (const link of links) {
        const [file, anchor] = link.split('#');
        const content = readFileSync(join(folder, file), 'utf8');
        assert.ok(!anchor || content.includes(`id="${anchor}"`), link);
        seen += 1;
      }
    }
  }
  assert.equal(seen, 16);
  await page.locator(`tr[data-row="${ids[0]}"] td.cell`).first().locator('.links a').first().click();
  await page.waitForURL(/runs\/ours-embedded\/report\.html#scenario-0$/);
  assert.equal(await page.locator('#scenario-0').isVisible(), true);
});

test('a failure is told in full, a skip and a difference with their reason', async () => {
  const { page } = await open();
  const row = page.locator(`tr[data-row="${ids[1]}"]`);
  await row.locator('details.evidence > summary').click();
  const { failure } = report.rows[1].cells[1].scenarios[0];
  assert.deepEqual(await texts(row.locator('.diagnosis dd')), [failure.step, failure.message, failure.last_observed]);
  await row.locator('.diagnosis summary').click();
  assert.equal(await row.locator('.diagnosis pre').innerText(), failure.last_lines.map((line) => `${line}\n`).join(''));
  assert.equal(failure.last_lines.at(-1), `line 39 ${hostile}`);
  assert.match(await row.locator('.diagnosis summary').innerText(), new RegExp(`25 lines, after ${failure.earlier_lines} more`));
  assert.equal(await page.locator(`tr[data-row="${ids[70]}"] td.cell .why`).first().innerText(), `lacks clock ${hostile}`);
  const differs = page.locator(`tr[data-row="${drift}"]`);
  const link = await differs.locator('td.cell a.why').first().getAttribute('href');
  assert.match(link, /docs\/differences\.md#drift$/);
  await differs.locator('details.evidence > summary').click();
  const { reason } = report.rows.find((one) => one.id === drift).cells[0].differences[0];
  assert.equal(await differs.locator('.difference').innerText(), `Listed: ${reason}`);
});

test('a pass that a controller that does nothing has too is marked', async () => {
  const { page } = await open();
  assert.equal(await page.locator(`tr[data-row="${ids[0]}"] .idle`).count(), 0);
  assert.equal(await page.locator(`tr[data-row="${ids[1]}"] .idle`).count(), 1);
  assert.equal(report.columns[0].passed_when_idle, 1);
  assert.match(await page.locator('.card').first().innerText(), /1 of the 2 passed are passed by a controller that does nothing/);
});

test('a column that could not start says why', async () => {
  const { page } = await open();
  assert.equal(await page.locator('.card').nth(2).locator('.why').innerText(), `Could not start: etcd is not found ${hostile}`);
});

test('filters show what they say, and their count', async () => {
  const { page } = await open();
  const check = async (wanted) => {
    const rows = report.rows.filter(wanted).map((row) => row.id);
    const shown = rows.length === ids.length ? `${ids.length} rows` : `${rows.length} of ${ids.length} rows`;
    // A form that is reset filters a moment later.
    await page.waitForFunction((text) => document.querySelector('#shown').innerText === text, shown, { timeout: 5000 });
    assert.deepEqual(await texts(page.locator('tr[data-row]:visible th > code').filter({ visible: true })), rows);
    const groups = [...new Set(rows.map((id) => id.split('.')[0]))];
    assert.deepEqual(await texts(page.locator('tr.feature:visible')), groups);
    return rows.length;
  };
  assert.equal(await check(() => true), 357);
  await page.selectOption('select[name=group]', 'interruption');
  await check((row) => row.group === 'interruption');
  await page.uncheck('input[value=core]');
  assert.ok(await check((row) => row.group === 'interruption' && row.level !== 'core') > 0);
  await page.click('button[type=reset]');
  assert.equal(await check(() => true), 357);
  await page.selectOption('select[data-column="0"]', 'passed');
  assert.equal(await check((row) => row.cells[0].outcome === 'passed'), 2);
  await page.selectOption('select[data-column="1"]', 'failed');
  assert.equal(await check((row) => row.cells[0].outcome === 'passed' && row.cells[1].outcome === 'failed'), 1);
  await page.click('button[type=reset]');
  await page.fill('input[name=text]', 'SQS QUEUE');
  assert.ok(await check((row) => row.says.toLowerCase().includes('sqs queue')) > 0);
  await page.fill('input[name=text]', 'nothing reads like this');
  assert.equal(await check(() => false), 0);
});

test('it is used by keyboard alone', async () => {
  const { page } = await open();
  await page.focus('input[name=text]');
  await page.keyboard.type(ids[1]);
  assert.equal(await page.innerText('#shown'), `1 of ${ids.length} rows`);
  await page.focus('details.evidence:visible > summary');
  await page.keyboard.press('Enter');
  assert.equal(await page.locator(`tr[data-row="${ids[1]}"] details.evidence`).evaluate((one) => one.open), true);
});

test('a link to a row opens its evidence', async () => {
  const { page } = await open({}, `#${drift}`);
  const row = page.locator(`tr[data-row="${drift}"]`);
  assert.equal(await row.locator('details.evidence').evaluate((one) => one.open), true);
  const { y } = await row.boundingBox();
  assert.ok(y >= 0 && y < 1000, String(y));
});

test('the head of the table stays in sight', async () => {
  const { page } = await open();
  await page.locator(`tr[data-row="${ids[200]}"]`).evaluate((row) => row.scrollIntoView());
  const { y } = await page.locator('table.matrix thead th').first().boundingBox();
  assert.equal(y, 0);
  const row = await page.locator(`tr[data-row="${ids[200]}"]`).boundingBox();
  const head = await page.locator('table.matrix thead th').first().boundingBox();
  assert.ok(row.y >= head.height - 1, 'a row that is scrolled to is not below it');
});

test('nothing becomes markup, nothing is said on the console, nothing is asked of the network', async () => {
  const { page, complaints, requests, url } = await open();
  await page.click('#expand');
  assert.equal(await page.locator('img').count(), 0);
  assert.equal(await page.locator('script').count(), 1);
  assert.deepEqual(complaints, []);
  assert.deepEqual(requests, [url]);
});

test('nothing leaves the page, from 320 pixels on, with all evidence open', async () => {
  for (const width of [320, 400, 800, 920, 1400]) {
    const { page } = await open({ viewport: { width, height: 800 } });
    await page.click('#expand');
    await page.locator('.diagnosis details').evaluateAll((all) => all.forEach((one) => { one.open = true; }));
    const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(over, 0, `${over} pixels too wide at ${width}`);
  }
});

test('texts can be told from their ground in light and dark', async () => {
  for (const colorScheme of ['light', 'dark']) {
    const { page } = await open({ colorScheme });
    const poor = await page.evaluate(() => {
      const parse = (color) => color.match(/[\d.]+/g).map(Number);
      const luminance = ([r, g, b]) => [r, g, b].map((part) => part / 255)
        .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
      const ground = (element) => {
        for (let one = element; one; one = one.parentElement) {
          const color = parse(getComputedStyle(one).backgroundColor);
          if (color[3] !== 0) return color;
        }
        return [255, 255, 255];
      };
      return [...document.querySelectorAll('.verdict, .why, .muted, .told, .says, .level, th, a, code, summary')].flatMap((element) => {
        const [one, other] = [luminance(parse(getComputedStyle(element).color)), luminance(ground(element))];
        const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        return contrast < 4.5 ? [`${element.className} ${contrast.toFixed(2)}`] : [];
      });
    });
    assert.deepEqual([...new Set(poor)], [], colorScheme);
  }
});

test('printed, the filters are gone and failures are open', async () => {
  const { page } = await open();
  await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
  await page.emulateMedia({ media: 'print' });
  assert.equal(await page.locator('#filters').isVisible(), false);
  assert.equal(await page.locator(`tr[data-row="${ids[1]}"] .diagnosis pre`).isVisible(), true);
  assert.equal(await page.locator(`tr[data-row="${ids[0]}"] details.evidence`).isVisible(), false);
  await page.evaluate(() => dispatchEvent(new Event('afterprint')));
  assert.equal(await page.locator(`tr[data-row="${ids[1]}"] details.evidence`).evaluate((one) => one.open), false);
});

test('without its script the page shows everything but the filters', async () => {
  const { page } = await open({ javaScriptEnabled: false });
  assert.equal(await page.locator('#filters').isVisible(), false);
  assert.equal(await page.locator('tr[data-row]').count(), 357);
  await page.locator(`tr[data-row="${ids[1]}"] details.evidence > summary`).click();
  assert.equal(await page.locator(`tr[data-row="${ids[1]}"] .diagnosis`).isVisible(), true);
});
