"""Draws how a training went: losses and held-out accuracy of each head over time, as an svg file."""
import xml.sax.saxutils

WIDTH, HEIGHT, LEFT, TOP = 320, 240, 56, 48
COLOURS = ("#c02020", "#2060c0", "#208040", "#b07000", "#7030a0", "#008090", "#a02060", "#606060")


def panel(curve, pick, place, title, top):
    """One chart: a line for each head. pick(entry, head) is the value; top: of the axis."""
    x0, end = LEFT + place * (WIDTH + 80), max(entry["seconds"] for entry in curve) or 1
    lines = ['<text x="%d" y="%d" font-size="14">%s</text>' % (x0, TOP - 16, title)]
    for i in range(5):
        y = TOP + HEIGHT * (1 - i / 4)
        lines.append('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#eee"/><text x="%d" y="%.1f" '
                     'text-anchor="end">%.2f</text>' % (x0, y, x0 + WIDTH, y, x0 - 6, y + 4, top * i / 4))
    for head in range(len(curve[0]["losses"])):
        colour = COLOURS[head % len(COLOURS)]
        points = ["%.1f,%.1f" % (x0 + WIDTH * entry["seconds"] / end,
                                 TOP + HEIGHT * (1 - min(1, pick(entry, head) / top))) for entry in curve]
        lines.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (
            " ".join(points), colour))
        lines.append('<text x="%d" y="%s" fill="%s">%d</text>' % (
            x0 + WIDTH + 6, float(points[-1].split(",")[1]) + 4, colour, head + 1))
    lines.append('<text x="%d" y="%d">0</text><text x="%d" y="%d" text-anchor="end">%.0f s</text>' % (
        x0, TOP + HEIGHT + 18, x0 + WIDTH, TOP + HEIGHT + 18, end))
    return lines


def draw(path, curve, name):
    """curve: {"seconds", "losses": [], "accuracy": [[of rank 1, ...]]} for every time it was judged."""
    if not curve:
        return
    top = max(loss for entry in curve for loss in entry["losses"])
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">' % (
        2 * WIDTH + 180, HEIGHT + 110), '<rect width="100%" height="100%" fill="white"/>']
    lines += panel(curve, lambda entry, head: entry["losses"][head], 0, "Loss of each head", top)
    lines += panel(curve, lambda entry, head: entry["accuracy"][head][0], 1, "Held out: its best token is right", 1)
    lines.append('<text x="%d" y="%d" fill="#555">%s</text></svg>' % (
        LEFT, HEIGHT + 96, xml.sax.saxutils.escape(name)))
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
