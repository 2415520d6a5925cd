import { chromium } from 'playwright-core';
const [,, report, out, scheme='light', width='1400', ...only] = process.argv;
const flags = ['--no-sandbox','--disable-gpu','--disable-quic','--no-first-run','--disable-background-networking','--disable-component-update','--disable-sync'];
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: flags });
const page = await browser.newPage({ viewport: { width: +width, height: 1000 }, colorScheme: scheme });
await page.goto('file://' + report);
await page.click('#expand');
const arts = page.locator('article');
for (let i=0;i<await arts.count();i++) { if (only.length && !only.includes(String(i))) continue; await arts.nth(i).screenshot({ path: `${out}-${i}.png` }); }
await browser.close();
