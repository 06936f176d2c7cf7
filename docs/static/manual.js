// Gives each cell of a table the heading of its column, which manual.css shows on a phone.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".table-wrapper table")) {
    const headings = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.children].forEach((cell, column) => {
        if (headings[column]) cell.dataset.label = headings[column];
      });
    }
  }
});
