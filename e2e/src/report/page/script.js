// Filters, and details that open when they are asked for. Everything is readable without this.
(() => {
  const form = document.getElementById('filters');
  if (!form) return;
  form.hidden = false;
  form.addEventListener('submit', (event) => event.preventDefault());
  const rows = [...document.querySelectorAll('tr[data-scenario]')];
  const article = (row) => document.querySelector(`article[data-scenario="${row.dataset.scenario}"]`);
  const words = rows.map((row) => {
    const feature = row.closest('tbody').querySelector('.feature').textContent;
    return `${feature} ${row.textContent} ${row.dataset.tags}`.toLowerCase();
  });
  const apply = () => {
    const verdicts = new Set([...form.elements.verdict].filter((box) => box.checked).map((box) => box.value));
    const text = form.elements.text.value.trim().toLowerCase();
    const tag = form.elements.tag.value;
    let shown = 0;
    rows.forEach((row, index) => {
      const show = verdicts.has(row.dataset.verdict) && words[index].includes(text)
        && (!tag || row.dataset.tags.split(' ').includes(tag));
      row.hidden = !show;
      article(row).hidden = !show;
      shown += show ? 1 : 0;
    });
    document.querySelectorAll('table.overview tbody').forEach((body) => {
      body.hidden = !body.querySelector('tr[data-scenario]:not([hidden])');
    });
    document.getElementById('shown').textContent =
      shown === rows.length ? `${shown} scenario${shown === 1 ? '' : 's'}` : `${shown} of ${rows.length} scenarios`;
  };
  form.addEventListener('input', apply);
  // A page that is loaded again keeps what was typed.
  apply();
  const outer = () => document.querySelectorAll('details.outer');
  document.getElementById('expand').addEventListener('click', () => outer().forEach((one) => { one.open = true; }));
  document.getElementById('collapse').addEventListener('click', () => outer().forEach((one) => { one.open = false; }));
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const details = target && target.closest('details');
    if (details && !details.open) {
      details.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener('hashchange', reveal);
  reveal();
  // On paper nothing can be opened.
  const closed = [];
  addEventListener('beforeprint', () => {
    document.querySelectorAll('details.outer, details.legend, .diagnosis details').forEach((one) => {
      if (!one.open) { closed.push(one); one.open = true; }
    });
  });
  addEventListener('afterprint', () => closed.splice(0).forEach((one) => { one.open = false; }));
})();
