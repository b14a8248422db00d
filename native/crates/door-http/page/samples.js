// Pages to try, drawn here: nothing has to be downloaded.

export const SAMPLES = [
  ["A letter", () => drawn(900, 620, letter)],
  ["A crooked receipt", () => drawn(760, 900, receipt)],
];

const LETTER = [
  "Dear reader,", "",
  "this page was drawn by your browser a moment ago.",
  "The server finds its lines, turns them upright and",
  "reads them, each with a model of its own.", "",
  "Kyoto, 29 November 2026",
];

const RECEIPT = [
  ["Yakitori Kushi", ""], ["", ""], ["Chicken and leek  x 4", "1,280"], ["Shiitake  x 2", "460"],
  ["Barley tea", "220"], ["", ""], ["Total (yen)", "1,960"], ["Paid in cash", "2,000"], ["Change", "40"],
];

function drawn(width, height, draw) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.fillStyle = "#1b1b1b";
  draw(context);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function letter(context) {
  context.font = "30px Georgia, 'DejaVu Serif', serif";
  LETTER.forEach((line, number) => context.fillText(line, 70, 110 + number * 62));
}

function receipt(context) {
  context.fillStyle = "#8a8175";
  context.fillRect(0, 0, 760, 900);
  context.translate(400, 430);
  context.rotate(-0.12);
  context.fillStyle = "#fbf8f1";
  context.fillRect(-270, -350, 540, 700);
  context.fillStyle = "#222";
  context.font = "28px 'DejaVu Sans Mono', Menlo, monospace";
  RECEIPT.forEach(([what, price], number) => {
    context.textAlign = "left";
    context.fillText(what, -230, -270 + number * 66);
    context.textAlign = "right";
    context.fillText(price, 230, -270 + number * 66);
  });
}
