'use strict';
// Without this script each bar is a stop of the Tab key, and tells its title to the pointer. With it a lane is one stop, the
// arrow keys go on from there, and what a bar says stands at the foot of the window.
const told = document.getElementById('told');
const say = e => {
  const title = e.target.closest?.('[tabindex]')?.querySelector(':scope > title');
  told.textContent = title ? title.textContent : '';
};
for (const plot of document.querySelectorAll('.plot')) {
  const lanes = new Map();
  for (const bar of plot.querySelectorAll('[tabindex]')) {
    const lane = bar.dataset.lane ?? 'events';
    const all = lanes.get(lane) ?? [];
    bar.setAttribute('tabindex', all.length ? -1 : 0);
    all.push(bar);
    lanes.set(lane, all);
  }
  const order = [...lanes.values()];
  const middle = bar => { const box = bar.getBBox(); return box.x + box.width / 2; };
  plot.addEventListener('keydown', e => {
    const row = order.findIndex(all => all.includes(e.target));
    if (row === -1) return;
    const all = order[row], at = all.indexOf(e.target);
    const beside = by => order[row + by]?.reduce((x, y) => Math.abs(middle(x) - middle(e.target)) > Math.abs(middle(y) - middle(e.target)) ? y : x);
    const to = { ArrowRight: all[at + 1], ArrowLeft: all[at - 1], Home: all[0], End: all.at(-1), ArrowDown: beside(1), ArrowUp: beside(-1) }[e.key];
    if (!to) return;
    e.preventDefault();
    for (const bar of order.flat()) if (bar === to || all.includes(bar)) bar.setAttribute('tabindex', bar === to ? 0 : -1);
    to.focus();
    to.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  });
  plot.addEventListener('focusin', say);
  plot.addEventListener('focusout', () => { told.textContent = ''; });
  plot.addEventListener('pointerover', say);
  plot.addEventListener('pointerleave', () => { told.textContent = ''; });
}
