(() => {
  'use strict';
  const board = document.getElementById('board');
  const body = board.tBodies[0];
  const heads = [...board.tHead.rows[0].cells];
  const key = (row, column) => row.cells[column].dataset.key ?? row.cells[column].textContent;

  heads.forEach((head, column) => head.firstChild.addEventListener('click', () => {
    const rows = [...body.rows];
    const numeric = rows.every((row) => key(row, column) === '' || !Number.isNaN(Number(key(row, column))));
    const down = head.ariaSort ? head.ariaSort === 'ascending' : numeric;
    const compare = (a, b) => numeric ? Number(a) - Number(b) : a.localeCompare(b);
    rows.sort((one, other) => {
      const [a, b] = [key(one, column), key(other, column)];
      if (a === '' || b === '') return (a === '') - (b === '');
      return down ? compare(b, a) : compare(a, b);
    });
    heads.forEach((other) => other.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    body.append(...rows);
  }));
})();
