import { chromium } from 'playwright-core';
const [,, report, out] = process.argv;
const flags = ['--no-sandbox','--disable-gpu','--disable-quic','--no-first-run','--disable-background-networking','--disable-component-update','--disable-sync'];
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: flags });
for (const [name, width, colorScheme] of [['wide-light',1400,'light'],['wide-dark',1400,'dark'],['narrow-light',400,'light'],['narrow-dark',400,'dark']]) {
  const page = await browser.newPage({ viewport: { width, height: 1000 }, colorScheme });
  await page.goto('file://' + report);
  await page.screenshot({ path: `${out}-${name}.png` });
  await page.click('#expand').catch(()=>{});
  await page.screenshot({ path: `${out}-${name}-full.png`, fullPage: true });
  await page.close();
}
const page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
await page.goto('file://' + report);
await page.pdf({ path: `${out}.pdf`, preferCSSPageSize: true });
await browser.close();
