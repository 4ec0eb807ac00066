// A table whose rows come from data: sorted by a click on a header, searched, and so many rows shown at a time.
// A row is a list of cells; a cell is a text, or { text, value, node } where it sorts by a number or shows an element.
function dataTable(table, { limit, summary, sort }) {
  const headers = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const more = make("button", "more"), wide = table.closest(".wide");
  let rows = [], query = [], shown = limit, by = sort;
  more.type = "button";
  wide.after(more);
  table.classList.add("sortable");
  more.after(copyButton(table));
  const text = cell => cell.text ?? cell, value = cell => cell.value ?? cell;
  const compare = (a, b) => {
    const one = value(a[by.column]), other = value(b[by.column]);
    if (one === "" || other === "") return (one === "") - (other === "");
    const order = typeof one === "number" ? one - other : one.localeCompare(other, "en", { numeric: true });
    return by.descending ? -order : order;
  };
  const filled = row => {
    const line = make("tr");
    row.cells.forEach((cell, i) => {
      const made = make("td", headers[i].className);
      made.append(cell.node?.() ?? text(cell));
      line.append(made);
    });
    return line;
  };
  const draw = () => {
    const found = rows.filter(row => query.every(word => row.words.includes(word)));
    found.sort((a, b) => compare(a.cells, b.cells));
    headers.forEach((header, i) => {
      header.removeAttribute("aria-sort");
      if (i === by.column) header.setAttribute("aria-sort", by.descending ? "descending" : "ascending");
    });
    body.replaceChildren(...found.slice(0, shown).map(filled));
    more.hidden = found.length <= shown;
    more.textContent = `Show all ${found.length.toLocaleString("en")}`;
    summary(found.map(row => row.cells), rows.length);
  };
  more.addEventListener("click", () => { shown = Infinity; draw(); });
  headers.forEach((header, column) => {
    const button = make("button", "", ...header.childNodes);
    button.type = "button";
    button.addEventListener("click", () => {
      by = { column, descending: by.column === column ? !by.descending : header.classList.contains("n") };
      draw();
    });
    header.append(button);
  });
  return {
    fill(cells) {
      rows = cells.map(row => ({ cells: row, words: row.map(text).join(" ").toLowerCase() }));
      shown = limit;
      draw();
    },
    search(typed) {
      query = typed.toLowerCase().split(/\s+/).filter(Boolean);
      shown = limit;
      draw();
    },
  };
}
