// Takes the same page again while somebody looks, and puts what is new in place of what is old.
// Without it the page is whole, and the link beside the time does the same.
(() => {
  'use strict';
  const every = 5000;
  const parts = ['summary', 'as-of', 'main'];
  const refresh = document.getElementById('refresh');
  const link = refresh.querySelector('a');
  const said = document.createElement('span');
  const pause = document.createElement('button');
  let paused = false;
  let wait = every;
  refresh.replaceChildren(said, ' ', pause, ' ', link);
  pause.type = 'button';
  pause.addEventListener('click', () => {
    paused = !paused;
    tell();
    if (!paused) next();
  });
  link.addEventListener('click', (event) => {
    event.preventDefault();
    next();
  });
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && !paused) next();
  });

  const tell = (problem) => {
    said.textContent = problem || (paused ? 'paused' : `every ${Math.round(wait / 1000)} s`);
    pause.textContent = paused ? 'Go on' : 'Pause';
    refresh.classList.toggle('stale', Boolean(problem));
    document.body.classList.toggle('stale', Boolean(problem));
  };

  // Who selects text or is in the middle of a list is not disturbed.
  const focusables = (root) => [...root.querySelectorAll('a,summary,button,input')];
  const place = () => {
    const active = document.activeElement;
    const home = active && active.closest('details[id],article,section,main');
    if (!home || !document.getElementById('main').contains(home)) return () => {};
    const index = focusables(home).indexOf(active);
    const same = home.id ? () => document.getElementById(home.id) : () => {
      const all = [...document.querySelectorAll(home.tagName)];
      return all[number];
    };
    const number = [...document.querySelectorAll(home.tagName)].indexOf(home);
    return () => {
      const found = same();
      const target = found && focusables(found)[index];
      if (target) target.focus({ preventScroll: true });
    };
  };

  const put = (text) => {
    const fresh = new DOMParser().parseFromString(text, 'text/html');
    const open = [...document.querySelectorAll('details[open]')].map((one) => one.id);
    const refocus = place();
    for (const part of parts) {
      const [old, young] = [document, fresh].map((one) => one.getElementById(part));
      if (!young) throw new Error('another page');
      if (part === 'summary') {
        // A live region is told when it changes, and only then.
        if (old.textContent !== young.textContent) old.textContent = young.textContent;
        old.className = young.className;
      } else {
        for (const id of open) {
          const details = young.querySelector(`#${CSS.escape(id)}`);
          if (details) details.open = true;
        }
        old.replaceChildren(...document.adoptNode(young).childNodes);
      }
    }
    document.title = fresh.title;
    refocus();
  };

  let timer;
  let busy = false;
  const next = async () => {
    clearTimeout(timer);
    if (busy) return;
    busy = true;
    const began = performance.now();
    try {
      const answer = await fetch(location.href, { cache: 'no-store', signal: AbortSignal.timeout(30000) });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const text = await answer.text();
      // An exporter that takes long is asked seldom.
      wait = Math.max(every, 20 * (performance.now() - began));
      if (getSelection().isCollapsed) put(text);
      tell();
    } catch (error) {
      tell(`NOT REFRESHED, this is old: ${error.message}`);
    }
    busy = false;
    if (!paused) timer = setTimeout(() => document.hidden || next(), wait);
  };
  tell();
  timer = setTimeout(next, wait);
})();
