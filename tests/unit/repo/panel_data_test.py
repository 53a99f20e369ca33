"""What grafana/render_panels.py asks and writes, as far as that takes no Prometheus."""

import sys
import unittest

import tree

sys.path.insert(0, str(tree.ROOT / "grafana"))

from panel_data import Range, Series, buckets_of, legend_of, series_of, variables_of, with_variables
from panel_units import text_of

HOUR = Range(0, 3600, scrape_seconds=15)


class Answers:
    """A Prometheus that gives one answer, and notes what it was asked."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def ask(self, path, **parameters):
        self.asked.append((path, parameters))
        return self.answer


class Asking(unittest.TestCase):
    def test_a_rate_spans_four_scrapes_at_least_and_a_step_more_than_one(self):
        self.assertEqual((HOUR.step, HOUR.rate_seconds), (15, 60))
        day = Range(0, 86400, scrape_seconds=15)
        self.assertEqual((day.step, day.rate_seconds), (360, 375))

    def test_variables_are_filled_in_and_unknown_ones_stay(self):
        self.assertEqual(with_variables("a[$x] b{${y}} $z", {"x": "1m", "y": 2}), "a[1m] b{2} $z")

    def test_a_variable_is_what_was_chosen_else_all_else_the_last_known(self):
        choices = [
            {"name": "instance", "type": "query", "allValue": ".+"},
            {"name": "job_id", "type": "query", "definition": 'label_values(up{i=~"$instance"}, job_id)'},
            {"name": "datasource", "type": "datasource"},
        ]
        dashboard, prometheus = {"templating": {"list": choices}}, Answers(["a", "b"])
        values = variables_of(dashboard, prometheus, HOUR, {})
        self.assertEqual(values, {"__range": "3600s", "__rate_interval": "60s", "instance": ".+", "job_id": "b"})
        self.assertEqual(
            prometheus.asked, [("label/job_id/values", {"match[]": 'up{i=~".+"}', "start": 0, "end": 3600})]
        )
        self.assertEqual(variables_of(dashboard, prometheus, HOUR, {"job_id": "c"})["job_id"], "c")

    def test_series_have_legends_and_numbers_only(self):
        target = {"expr": "x[$__rate_interval]", "legendFormat": "{{ stage }}: {{none}}."}
        answer = {"result": [{"metric": {"stage": "b"}, "values": [[1, "NaN"], [2, "3"]]}]}
        answer["result"] += [{"metric": {"stage": "a"}, "values": [[1, "4"]]}, {"metric": {}, "values": [[1, "+Inf"]]}]
        prometheus = Answers(answer)
        made = series_of(target, prometheus, HOUR, {"__rate_interval": "60s"})
        self.assertEqual([(one.name, one.times, one.values) for one in made], [("a: .", [1], [4]), ("b: .", [2], [3])])
        self.assertEqual(prometheus.asked, [("query_range", {"query": "x[60s]", "start": 0, "end": 3600, "step": 15})])
        self.assertEqual(legend_of("limit", {}), "limit")

    def test_a_bucket_counts_what_the_ones_below_it_do_not(self):
        def upto(bound, *values):
            return Series(bound, {"le": bound}, [1, 2], list(values))

        bounds, times, counts = buckets_of([upto("+Inf", 5, 9), upto("0.1", 2, 3), upto("1", 5, 8)])
        self.assertEqual((bounds, times), ([0.1, 1, float("inf")], [1, 2]))
        self.assertEqual(counts, [[2, 3], [3, 5], [0, 1]])


class Units(unittest.TestCase):
    def test_values_are_written_as_people_read_them(self):
        for value, unit, text in (
            (0.0042, "s", "4.2 ms"),
            (75, "s", "1.25 min"),
            (0, "s", "0 s"),
            (1234, "short", "1.23 K"),
            (0.5, "percentunit", "50%"),
            (3 * 2**20, "bytes", "3 MiB"),
            (60, "reqps", "60 req/s"),
            (2.5e6, "Bps", "2.5 MB/s"),
            (7, "lux", "7 lux"),
        ):
            self.assertEqual(text_of(value, unit), text)


if __name__ == "__main__":
    unittest.main()
