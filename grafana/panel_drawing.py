"""Draws the panels of a dashboard into one image, where the dashboard has them, much as Grafana would."""

import datetime
import math

import matplotlib

matplotlib.use("Agg")
import matplotlib.dates
import matplotlib.patches
import matplotlib.pyplot
import matplotlib.ticker
from panel_data import buckets_of
from panel_units import text_of

COLUMNS = 24
COLUMN_PIXELS = 60
ROW_PIXELS = 34
MARGIN_PIXELS = 6
DPI = 100
INK, FAINT, GROUND, FRAME = "#24292e", "#73808c", "#f4f5f5", "#dcdfe3"
COLOURS = ("#56a64b", "#f2a600", "#3274d9", "#e0226e", "#8f3bb8", "#00a3a3", "#fa6400", "#7c4a1e", "#8ab8ff", "#555f6b")
NAMED = {"green": "#37872d", "yellow": "#cc9d00", "red": "#c4162a"}
MAX_LEGEND = 12
HEAT = "YlOrBr"


def _cut(words, most):
    return words if len(words) <= most else words[: most - 1] + "…"


class Sheet:
    """The image, in pixels from the upper left."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.figure = matplotlib.pyplot.figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=GROUND)

    def box(self, x, y, width, height, colour, edge=None):
        self.figure.add_artist(
            matplotlib.patches.Rectangle(
                (x / self.width, 1 - (y + height) / self.height),
                width / self.width,
                height / self.height,
                facecolor=colour,
                edgecolor=edge or colour,
                linewidth=0.8,
                transform=self.figure.transFigure,
                zorder=-1,
            )
        )

    def text(self, x, y, words, size=8.5, colour=INK, **options):
        self.figure.text(x / self.width, 1 - y / self.height, words, fontsize=size, color=colour, **options)

    def axes(self, x, y, width, height):
        made = self.figure.add_axes(
            (x / self.width, 1 - (y + height) / self.height, width / self.width, height / self.height)
        )
        made.tick_params(labelsize=7, colors=FAINT, length=2)
        made.set_facecolor("white")
        for side in made.spines.values():
            side.set_visible(False)
        return made


def _threshold_colour(panel, value):
    colour = "green"
    for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            colour = step["color"]
    return NAMED.get(colour, INK)


def _mapped(panel, value):
    """(text, colour) of a value: its word where the panel has one for it."""
    defaults = panel["fieldConfig"]["defaults"]
    for mapping in defaults.get("mappings", []):
        word = mapping["options"].get(f"{value:g}")
        if word is not None:
            return word["text"], NAMED.get(word["color"], INK)
    return text_of(value, defaults["unit"]), _threshold_colour(panel, value)


def _time_axis(axes, shown):
    axes.set_xlim(*(datetime.datetime.fromtimestamp(time, datetime.UTC) for time in (shown.start, shown.end)))
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(4))
    axes.xaxis.set_major_formatter(matplotlib.dates.DateFormatter("%H:%M:%S"))


def _instants(times):
    return [datetime.datetime.fromtimestamp(time, datetime.UTC) for time in times]


def _with_gaps(series, step):
    """Times and values with a break wherever samples are missing."""
    times, values = [], []
    for time, value in zip(series.times, series.values, strict=True):
        if times and time - times[-1] > 2.5 * step:
            times.append(times[-1] + step)
            values.append(float("nan"))
        times.append(time)
        values.append(value)
    return times, values


def _ticks(unit, low, high):
    """Where the lines of the grid are: at round numbers, as the unit counts."""
    if unit == "bytes" and high > low:
        return matplotlib.ticker.MultipleLocator(2 ** math.ceil(math.log2((high - low) / 5)))
    return matplotlib.ticker.MaxNLocator(4)


def draw_lines(sheet, place, panel, series, shown):
    x, y, width, height = place
    unit = panel["fieldConfig"]["defaults"]["unit"]
    rows = min(len(series), MAX_LEGEND)
    shown_names = [_cut(each.name or "value", int(width / 5.6)) for each in series[:MAX_LEGEND]]
    columns = 1 if max(map(len, shown_names)) > 24 else min(rows, 4 if max(map(len, shown_names)) < 11 else 3)
    legend_height = 15 * -(-rows // columns) + 4
    axes = sheet.axes(x + 62, y + 26, width - 74, height - 50 - legend_height)
    for index, each in enumerate(series):
        times, values = _with_gaps(each, shown.step)
        colour = COLOURS[index % len(COLOURS)]
        label = shown_names[index] if index < MAX_LEGEND else "_"
        axes.plot(_instants(times), values, color=colour, linewidth=1.2, label=label)
        if len(series) == 1:
            axes.fill_between(_instants(times), values, color=colour, alpha=0.07, linewidth=0)
        if len(each.values) == 1:
            axes.plot(_instants(times), values, "o", color=colour, markersize=3)
    low, high = axes.get_ylim()
    if not any(any(each.values) for each in series):
        low, high = 0, 1
    axes.set_ylim(0 if low < 0 <= min(min(each.values) for each in series) else low, high)
    if panel["fieldConfig"]["defaults"].get("min") == 0:
        axes.set_ylim(bottom=0)
    if panel["fieldConfig"]["defaults"].get("custom", {}).get("thresholdsStyle"):
        for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]:
            axes.axhline(step["value"], color=NAMED.get(step["color"], FAINT), linestyle="--", linewidth=0.9)
    axes.grid(color=FRAME, linewidth=0.5)
    axes.yaxis.set_major_locator(_ticks(unit, *axes.get_ylim()))
    axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: text_of(value, unit)))
    _time_axis(axes, shown)
    sheet.figure.legend(
        *axes.get_legend_handles_labels(),
        loc="lower left",
        bbox_to_anchor=((x + 6) / sheet.width, 1 - (y + height - 2) / sheet.height),
        ncols=columns,
        fontsize=7,
        frameon=False,
        borderpad=0.1,
        labelspacing=0.25,
        handlelength=1.2,
        columnspacing=1.2,
    )


def draw_figures(sheet, place, panel, series, _):
    x, y, width, height = place
    share = width / len(series)
    for index, each in enumerate(series):
        words, colour = _mapped(panel, each.values[-1])
        middle = x + share * (index + 0.5)
        named = len(series) > 1 or panel["options"]["textMode"] == "value_and_name"
        size = min(22, share / (0.85 * max(len(words), 1)))
        place = {"ha": "center", "va": "center", "weight": "bold"}
        sheet.text(middle, y + height * (0.75 if named else 0.62), words, size=size, colour=colour, **place)
        if named:
            sheet.text(middle, y + height * 0.45, _cut(each.name, int(share / 8)), size=11, **place)


def draw_bars(sheet, place, panel, series, _):
    x, y, width, height = place
    defaults = panel["fieldConfig"]["defaults"]
    most = defaults.get("max") or max(max(each.values[-1] for each in series), 1e-12)
    each_height = (height - 34) / len(series)
    label_width = min(width * 0.4, 12 + 6.2 * max(len(each.name) for each in series))
    room = width - label_width - 74
    for index, each in enumerate(series):
        top = y + 28 + index * each_height
        middle = top + each_height / 2
        words, colour = _mapped(panel, each.values[-1])
        name = _cut(each.name, int(label_width / 5.8))
        sheet.text(x + label_width, middle, name, size=7.5, ha="right", va="center")
        thick = min(each_height * 0.7, 22)
        sheet.box(x + label_width + 8, middle - thick / 2, room, thick, "#eceef0")
        sheet.box(x + label_width + 8, middle - thick / 2, room * min(1, max(0, each.values[-1] / most)), thick, colour)
        sheet.text(x + width - 8, middle, words, size=8, colour=colour, ha="right", va="center")


def draw_heat_map(sheet, place, panel, series, shown):
    x, y, width, height = place
    bounds, times, counts = buckets_of(series)
    used = [index for index, row in enumerate(counts) if any(row)]
    first, last = (max(0, used[0] - 1), min(len(bounds), used[-1] + 2)) if used else (0, len(bounds))
    axes = sheet.axes(x + 62, y + 26, width - 74, height - 52)
    step = shown.step
    edges = _instants([time - step / 2 for time in times] + [times[-1] + step / 2])
    rows = [[value or float("nan") for value in row] for row in counts[first:last]]
    axes.pcolormesh(edges, range(len(rows) + 1), rows, cmap=HEAT, vmin=0, edgecolors="none")
    axes.set_yticks([index + 1 for index in range(len(rows))])
    unit = panel["options"]["yAxis"]["unit"]
    names = ["more" if bound == float("inf") else text_of(bound, unit) for bound in bounds[first:last]]
    every = -(-len(names) // 9)
    axes.set_yticklabels([name if index % every == 0 else "" for index, name in enumerate(names)])
    axes.grid(color=FRAME, linewidth=0.4)
    _time_axis(axes, shown)


DRAWINGS = {"timeseries": draw_lines, "stat": draw_figures, "bargauge": draw_bars, "heatmap": draw_heat_map}


def draw(dashboard, series_of_panel, shown):
    """The image as a matplotlib figure. `series_of_panel`: {panel id: its series}."""
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    head = 40
    sheet = Sheet(COLUMNS * COLUMN_PIXELS, rows * ROW_PIXELS + head + MARGIN_PIXELS)
    sheet.text(12, 26, dashboard["title"], size=13, weight="bold")
    sheet.text(sheet.width - 12, 26, _between(shown), size=9, colour=FAINT, ha="right")
    for panel in dashboard["panels"]:
        grid = panel["gridPos"]
        x, y = grid["x"] * COLUMN_PIXELS + MARGIN_PIXELS / 2, grid["y"] * ROW_PIXELS + head
        width, height = grid["w"] * COLUMN_PIXELS - MARGIN_PIXELS, grid["h"] * ROW_PIXELS - MARGIN_PIXELS
        if panel["type"] == "row":
            sheet.text(x + 8, y + 20, panel["title"], size=11, weight="bold")
            continue
        sheet.box(x, y, width, height, "white", FRAME)
        title = _cut(panel["title"], int(width / 6.4))
        sheet.text(x + 8, y + 17, title, size=8.5, weight="bold")
        series = series_of_panel[panel["id"]]
        if series:
            DRAWINGS[panel["type"]](sheet, (x, y, width, height), panel, series, shown)
        else:
            sheet.text(x + width / 2, y + height / 2 + 8, "No data", size=10, colour=FAINT, ha="center", va="center")
    return sheet.figure


def _between(shown):
    start, end = (datetime.datetime.fromtimestamp(time, datetime.UTC) for time in (shown.start, shown.end))
    return f"{start:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S} UTC"


def _palette():
    """The colours of the drawings and their shades towards white, which are what antialiasing makes of them."""
    from matplotlib.colors import to_rgb

    named = {*COLOURS, *NAMED.values(), INK, FAINT, FRAME, GROUND, "#eceef0"}
    shades = [
        [1 - share * (1 - part) for part in to_rgb(colour)]
        for colour in sorted(named)
        for share in (1, 0.8, 0.6, 0.4, 0.2, 0.07)
    ]
    heat = [matplotlib.colormaps[HEAT](index / 47)[:3] for index in range(48)]
    return [round(255 * part) for colour in [(1, 1, 1), *shades, *heat] for part in colour]


def save(figure, path):
    """As a PNG with a palette: the drawings have few colours, and it is a third of the size."""
    from PIL import Image

    figure.canvas.draw()
    pixels = figure.canvas.buffer_rgba()
    image = Image.frombuffer("RGBA", (pixels.shape[1], pixels.shape[0]), bytes(pixels)).convert("RGB")
    palette = Image.new("P", (1, 1))
    palette.putpalette(_palette())
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)
    matplotlib.pyplot.close(figure)
