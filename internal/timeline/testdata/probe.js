// Looks at a page as the browser has laid it out, and writes what it finds into it.
{
const found = [], leases = [];
const near = (x, y) => x.left < y.right - 0.5 && y.left < x.right - 0.5 && x.top < y.bottom - 0.5 && y.top < x.bottom - 0.5;
const boxOf = e => { const b = e.getBBox(); return { left: b.x, right: b.x + b.width, top: b.y, bottom: b.y + b.height, text: e.textContent }; };
for (const svg of document.querySelectorAll('svg.plot, svg.names')) {
  const texts = [...svg.querySelectorAll('text')], boxes = texts.map(boxOf);
  const bars = [...svg.querySelectorAll('rect:not(.z)')].map(boxOf);
  boxes.forEach((x, i) => {
    if (x.left < 0 || x.right > svg.clientWidth || x.top < 0 || x.bottom > svg.clientHeight) found.push('spills: ' + x.text);
    if (texts[i].matches('.l, .en') && !bars.some(b => b.left <= x.left && x.right <= b.right && b.top - 1 <= x.top && x.bottom <= b.bottom + 1))
      found.push('not in its bar: ' + x.text);
    for (const y of boxes.slice(0, i)) if (near(x, y)) found.push(x.text + ' lies upon ' + y.text);
  });
}
for (const row of document.querySelector('#v1').querySelectorAll('.h, .r')) leases.push(row.querySelector('title').textContent);
if (document.documentElement.scrollWidth > innerWidth) found.push('the page is wider than its window');
const light = c => { const [r, g, b] = c.match(/[\d.]+/g).map(x => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const contrast = (x, y) => { const [a, b] = [light(x), light(y)].sort((p, q) => q - p); return (a + 0.05) / (b + 0.05); };
const paint = (css, what) => getComputedStyle(document.querySelector(css))[what];
const paper = paint('body', 'backgroundColor');
for (const [name, x, y] of [['text', paint('body', 'color'), paper], ['soft text', paint('.when', 'color'), paper],
  ['label', paint('.l', 'fill'), paint('.plot .h', 'fill')], ['badge', paint('.en', 'fill'), paint('.e', 'fill')]])
  if (contrast(x, y) < 4.5) found.push('hard to read: ' + name + ' ' + x + ' on ' + y);
const stops = document.querySelectorAll('.plot [tabindex="0"]'), bar = stops[0], told = document.getElementById('told');
bar.focus();
if (told.textContent !== bar.querySelector('title').textContent) found.push('focus tells nothing: ' + told.textContent);
bar.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true, cancelable: true }));
if (document.activeElement === bar || !told.textContent || bar.getAttribute('tabindex') !== '-1') found.push('an arrow key does not go on');
if (stops.length > 200) found.push('stops of the Tab key: ' + stops.length);
if (document.images.length) found.push('a name has become a part of the page');
if (innerWidth < 600 && !matchMedia('(prefers-color-scheme: dark)').matches) found.push('the narrow window is not dark');
const report = document.body.appendChild(document.createElement('pre'));
report.id = 'report';
report.textContent = JSON.stringify({ Found: found, Leases: leases });
}
