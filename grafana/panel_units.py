"""Values as Grafana writes them: the units that the dashboards use."""


def _scaled(value, base, names):
    size = abs(value)
    index = 0
    while size >= base and index + 1 < len(names):
        size, value, index = size / base, value / base, index + 1
    return value, names[index]


def _digits(value):
    """Three that count, and no zeros behind the point."""
    text = f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{float(text):.0f}" if "e+" in text else text


def _seconds(value):
    size = abs(value)
    if size == 0:
        return "0 s"
    for least, factor, name in ((86400, 1 / 86400, "d"), (3600, 1 / 3600, "h"), (60, 1 / 60, "min"), (1, 1, "s")):
        if size >= least:
            return f"{_digits(value * factor)} {name}"
    return f"{_digits(value * 1e3)} ms" if size >= 1e-3 else f"{_digits(value * 1e6)} µs"


def _with(base, names, suffix):
    def text(value):
        scaled, name = _scaled(value, base, names)
        return f"{_digits(scaled)} {name}{suffix}".replace("  ", " ").strip()

    return text


UNITS = {
    "short": _with(1000, ["", "K", "Mil"], ""),
    "percentunit": lambda value: f"{_digits(100 * value)}%",
    "s": _seconds,
    "reqps": _with(1000, ["", "K"], " req/s"),
    "Bps": _with(1000, ["B", "kB", "MB", "GB"], "/s"),
    "suffix: nats/token": _with(1000, ["", "K"], " nats/token"),
    "bytes": _with(1024, ["B", "KiB", "MiB", "GiB", "TiB"], ""),
}


def text_of(value, unit):
    return UNITS.get(unit, lambda number: f"{_digits(number)} {unit}")(value)
