"""The quantum dial as a picture: plain SVG, two curves over a logarithmic axis of quanta."""
import math

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 650, 40, 340
BLUE, RED = "#1f5fa8", "#b03a2e"


def nice_top(value):
    """The least of 1, 2, 2.5, 5 times a power of ten that is not below the value."""
    power = 10 ** math.floor(math.log10(max(value, 1e-9)))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * 0.999)


def text(x, y, words, color="#333", anchor="middle", turn=None):
    turned = f' transform="rotate({turn} {x} {y})"' if turn is not None else ""
    return (f'<text x="{x:.0f}" y="{y:.0f}" fill="{color}" text-anchor="{anchor}" font-family="sans-serif" '
            f'font-size="13"{turned}>{words}</text>')


def curve(points, color):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>' for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>{dots}'


def quantum_dial(rows, alone_ms, title):
    """rows: (quantum in ms, p99 of the default model in ms, tokens per second of the optional one)."""
    low, high = math.log(rows[0][0]), math.log(rows[-1][0])
    top_ms = nice_top(max([row[1] for row in rows] + [alone_ms]) * 1.05)
    top_rate = nice_top(max(row[2] for row in rows) * 1.05)

    def x_of(quantum):
        return LEFT + 30 + (math.log(quantum) - low) / max(high - low, 1e-9) * (RIGHT - LEFT - 60)

    def y_of(value, top):
        return BOTTOM - value / top * (BOTTOM - TOP)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
           f'viewBox="0 0 {WIDTH} {HEIGHT}"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           text((LEFT + RIGHT) / 2, 22, title)]
    for part in range(6):
        y = BOTTOM - part * (BOTTOM - TOP) / 5
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(text(LEFT - 8, y + 4, f"{top_ms * part / 5:g}", BLUE, "end"))
        out.append(text(RIGHT + 8, y + 4, f"{top_rate * part / 5:g}", RED, "start"))
    for quantum, _, _ in rows:
        out.append(text(x_of(quantum), BOTTOM + 20, f"{quantum:g}"))
    alone = y_of(alone_ms, top_ms)
    out.append(f'<line x1="{LEFT}" y1="{alone:.1f}" x2="{RIGHT}" y2="{alone:.1f}" stroke="{BLUE}" '
               'stroke-dasharray="6 4"/>')
    out.append(text(LEFT + 6, alone - 6, "default alone", BLUE, "start"))
    out.append(curve([(x_of(row[0]), y_of(row[1], top_ms)) for row in rows], BLUE))
    out.append(curve([(x_of(row[0]), y_of(row[2], top_rate)) for row in rows], RED))
    out.append(text((LEFT + RIGHT) / 2, BOTTOM + 44, "quantum, ms"))
    out.append(text(20, (TOP + BOTTOM) / 2, "default model: p99 between tokens, ms", BLUE, turn=-90))
    out.append(text(WIDTH - 16, (TOP + BOTTOM) / 2, "optional model: tokens per second", RED, turn=90))
    return "\n".join([*out, "</svg>"]) + "\n"
