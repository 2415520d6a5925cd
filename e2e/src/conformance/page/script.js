// Filters, and evidence that opens when it is asked for. Everything is readable without this.
(() => {
  const form = document.getElementById('filters');
  if (!form) return;
  form.hidden = false;
  form.addEventListener('submit', (event) => event.preventDefault());
  const rows = [...document.querySelectorAll('tr[data-row]')];
  const words = rows.map((row) => {
    const titles = [...row.querySelectorAll('.title')].map((title) => title.textContent).join(' ');
    return `${row.dataset.row} ${row.querySelector('.says').textContent} ${titles}`.toLowerCase();
  });
  const columns = [...form.querySelectorAll('select[name=column]')];
  const apply = () => {
    const text = form.elements.text.value.trim().toLowerCase();
    const group = form.elements.group.value;
    const levels = new Set([...form.querySelectorAll('input[name=level]:checked')].map((box) => box.value));
    let shown = 0;
    rows.forEach((row, index) => {
      const outcomes = row.dataset.outcomes.split(' ');
      const show = words[index].includes(text) && (!group || row.dataset.row.startsWith(`${group}.`))
        && levels.has(row.dataset.level)
        && columns.every((select) => !select.value || outcomes[+select.dataset.column] === select.value);
      row.hidden = !show;
      shown += show ? 1 : 0;
    });
    document.querySelectorAll('table.matrix tbody').forEach((body) => {
      body.hidden = !body.querySelector('tr[data-row]:not([hidden])');
    });
    document.getElementById('shown').textContent =
      shown === rows.length ? `${shown} rows` : `${shown} of ${rows.length} rows`;
  };
  form.addEventListener('input', apply);
  form.addEventListener('reset', () => setTimeout(apply));
  // A page that is loaded again keeps what was chosen.
  apply();
  const shownEvidence = () => [...document.querySelectorAll('tr[data-row]:not([hidden]) details.evidence')];
  document.getElementById('expand').addEventListener('click', () => shownEvidence().forEach((one) => { one.open = true; }));
  document.getElementById('collapse').addEventListener('click', () => {
    document.querySelectorAll('details.evidence').forEach((one) => { one.open = false; });
  });
  // A link to a row shows it, whatever is filtered.
  const reveal = () => {
    const row = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!row || !row.matches('tr[data-row]')) return;
    if (row.hidden) { form.reset(); apply(); }
    const details = row.querySelector('details.evidence');
    if (details) details.open = true;
    row.scrollIntoView();
  };
  addEventListener('hashchange', reveal);
  reveal();
  // On paper nothing can be opened.
  const closed = [];
  addEventListener('beforeprint', () => {
    document.querySelectorAll('details.evidence:not([data-failed="0"]), .evidence .diagnosis details').forEach((one) => {
      if (!one.open) { closed.push(one); one.open = true; }
    });
  });
  addEventListener('afterprint', () => closed.splice(0).forEach((one) => { one.open = false; }));
})();
