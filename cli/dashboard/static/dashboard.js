'use strict';
// What a page does beyond its links and forms. Every text that arrives here is set as text, never as HTML of ours plus data.
(function () {
  const root = document.documentElement;

  // -- light and dark -------------------------------------------------------------------------------------------------
  function stored(value) {
    try {
      if (value === undefined) return localStorage.getItem('theme');
      localStorage.setItem('theme', value);
    } catch { /* storage is off: the choice lasts for this page */ }
    return value;
  }
  const theme = stored();
  if (theme === 'dark' || theme === 'light') root.dataset.theme = theme;
  document.getElementById('theme').addEventListener('click', function () {
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = stored(dark ? 'light' : 'dark');
  });

  // -- menu: on a narrow window it is a line, and the current page may be far to the right ------------------------------
  const current = document.querySelector('.menu [aria-current]');
  if (current) current.parentElement.scrollLeft = current.offsetLeft - (current.parentElement.clientWidth - current.offsetWidth) / 2;

  // -- tables ---------------------------------------------------------------------------------------------------------
  function cellValue(cell) {
    if (cell.dataset.v !== undefined) return cell.dataset.v === '' ? -Infinity : Number(cell.dataset.v);
    return cell.textContent.trim();
  }

  function small(sheet) {
    const body = sheet.querySelector('tbody');
    const rows = Array.from(body.rows).filter((row) => !row.classList.contains('empty'));
    const heads = Array.from(sheet.querySelectorAll('thead th'));
    const filter = sheet.querySelector('.filter');
    const count = sheet.querySelector('.count b');

    heads.forEach(function (head, column) {
      head.querySelector('.sort').addEventListener('click', function () {
        const before = head.getAttribute('aria-sort');
        const down = before ? before === 'ascending' : head.classList.contains('n');
        heads.forEach((other) => other.removeAttribute('aria-sort'));
        head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
        const keyed = rows.map((row) => [cellValue(row.cells[column]), row]);
        keyed.sort(function (a, b) {
          const order = typeof a[0] === 'number' && typeof b[0] === 'number'
            ? a[0] - b[0] : String(a[0]).localeCompare(String(b[0]), undefined, { numeric: true });
          return down ? -order : order;
        });
        keyed.forEach((pair) => body.append(pair[1]));
      });
    });
    if (!filter) return;
    filter.form.addEventListener('submit', (event) => event.preventDefault());
    filter.addEventListener('input', function () {
      const wanted = filter.value.toLowerCase();
      let shown = 0;
      for (const row of rows) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = shown.toLocaleString('en');
    });
  }

  // Long tables: the server sorts, filters and pages; the part of its page is put in place.
  function long(sheet) {
    let asked = 0;
    async function load(address, focus) {
      const mine = ++asked;
      sheet.classList.add('busy');
      try {
        const answer = await fetch(address);
        const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
        const fresh = page.getElementById(sheet.id);
        if (mine !== asked || !fresh) return;
        for (const part of ['.scroll', '.count', '.pager']) {
          const old = sheet.querySelector(part), now = fresh.querySelector(part);
          if (old && now) old.replaceWith(now);
          else if (now) sheet.append(now);
          else if (old) old.remove();
        }
        history.replaceState(null, '', address);
        const twin = document.getElementById('twin'), other = page.getElementById('twin');
        if (twin && other) twin.href = other.getAttribute('href');
        if (focus) sheet.querySelector('.scroll').focus({ preventScroll: true });
      } finally {
        if (mine === asked) sheet.classList.remove('busy');
      }
    }
    sheet.addEventListener('click', function (event) {
      const link = event.target.closest('th a.sort, .pager a');
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      load(link.href, true);
    });
    const filter = sheet.querySelector('.filter');
    function search() {
      const address = new URL(location.href);
      address.searchParams.set(filter.name, filter.value);
      address.searchParams.delete(sheet.dataset.name + '.page');
      load(address.href, false);
    }
    let timer;
    filter.form.addEventListener('submit', function (event) { event.preventDefault(); search(); });
    filter.addEventListener('input', function () { clearTimeout(timer); timer = setTimeout(search, 160); });
  }

  function quoted(text) {
    const safe = /^[=+\-@\t]/.test(text) && isNaN(Number(text)) ? "'" + text : text;
    return /[",\n]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
  }

  async function csvOf(sheet) {
    if (sheet.dataset.csv) return (await fetch(sheet.dataset.csv + location.search)).text();
    const lines = [Array.from(sheet.querySelectorAll('thead th'), (head) => quoted(head.textContent.trim()))];
    for (const row of sheet.querySelectorAll('tbody tr:not([hidden]):not(.empty)')) {
      lines.push(Array.from(row.cells, (cell) => quoted(cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent.trim())));
    }
    return lines.map((line) => line.join(',')).join('\r\n') + '\r\n';
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement('textarea');
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
  }

  for (const sheet of document.querySelectorAll('.sheet')) {
    (sheet.dataset.server === '1' ? long : small)(sheet);
    const button = sheet.querySelector('.csv');
    if (button) button.addEventListener('click', async function () {
      const label = button.textContent;
      await copy(await csvOf(sheet));
      button.textContent = button.dataset.done;
      setTimeout(function () { button.textContent = label; }, 1500);
    });
  }

  // -- tabs -----------------------------------------------------------------------------------------------------------
  for (const list of document.querySelectorAll('[role="tablist"]')) {
    const tabs = Array.from(list.querySelectorAll('[role="tab"]'));
    function choose(chosen) {
      for (const tab of tabs) {
        const on = tab === chosen;
        tab.setAttribute('aria-selected', String(on));
        tab.tabIndex = on ? 0 : -1;
        document.getElementById(tab.getAttribute('aria-controls')).hidden = !on;
      }
    }
    tabs.forEach(function (tab, at) {
      tab.addEventListener('click', () => choose(tab));
      tab.addEventListener('keydown', function (event) {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = tabs[(at + step + tabs.length) % tabs.length];
        choose(next);
        next.focus();
      });
    });
  }

  // -- keys: / goes to the filter, ? nothing else is taken ------------------------------------------------------------------
  document.addEventListener('keydown', function (event) {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest('input, select, textarea')) return;
    const filter = document.querySelector('main .filter');
    if (filter) { event.preventDefault(); filter.focus(); filter.select(); }
  });

  // -- pictures: what is under the pointer or the focus ---------------------------------------------------------------------
  const told = document.getElementById('told');
  if (told) {
    const tell = function (event) {
      const box = event.target.closest('[data-told]');
      if (box) told.textContent = box.dataset.told;
    };
    document.addEventListener('pointerover', tell);
    document.addEventListener('focusin', tell);
  }

  // -- logs that grow ---------------------------------------------------------------------------------------------------------
  const log = document.getElementById('log');
  const form = document.getElementById('logform');
  if (log && form) {
    log.scrollTop = log.scrollHeight;
    let next = form.dataset.next, timer = null;
    const follow = document.getElementById('follow');
    async function more() {
      const query = new URLSearchParams(new FormData(form));
      query.set('after', next);
      try {
        const page = await (await fetch(form.dataset.twin + '?' + query)).json();
        if (page.size < Number(next)) { location.reload(); return; }
        next = page.next;
        for (const line of page.lines) {
          const item = document.createElement('li');
          item.className = 'l-' + line.level;
          item.textContent = line.text;
          log.append(item);
        }
        while (log.children.length > 5000) log.firstElementChild.remove();
        if (page.lines.length) log.scrollTop = log.scrollHeight;
        form.querySelector('.count').textContent = page.size.toLocaleString('en') + ' B';
      } catch { /* the server is gone for a moment: ask again */ }
      if (follow.checked) timer = setTimeout(more, 1000);
    }
    follow.addEventListener('change', function () {
      clearTimeout(timer);
      if (follow.checked) more();
    });
    form.querySelector('select').addEventListener('change', () => form.requestSubmit());
  }
}());
