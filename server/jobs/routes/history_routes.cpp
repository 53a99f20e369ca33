#include "server/jobs/routes/history_routes.hpp"

#include <algorithm>
#include <boost/algorithm/string/join.hpp>
#include <boost/json/array.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "api/job_fields.hpp"
#include "base/ascii.hpp"
#include "base/json_fields.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/event_stream.hpp"
#include "server/jobs/routes/job_refusals.hpp"
#include "server/jobs/routes/query_reader.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using http::Request;
using http::Response;

constexpr std::uint32_t kEventsDefault = 100;
constexpr std::uint32_t kEventsMax = 1000;
constexpr std::uint32_t kCheckpointsDefault = 1000;
constexpr std::uint32_t kCheckpointsMax = 10000;
constexpr std::uint32_t kPointsDefault = 500;
constexpr std::uint32_t kPointsMax = 10000;
constexpr auto kMaxNumber = std::numeric_limits<std::int64_t>::max();

bool wants_event_stream(const Request& request) {
    const auto accept = request.header("accept");
    return accept && ascii_lower(*accept).find("text/event-stream") != std::string::npos;
}

/// Parses `names=a,b`; all names if it is missing.
std::vector<std::string> names_of(QueryReader& asked) {
    const auto& known = series_names();
    const auto text = asked.value("names");
    if (!text) {
        return known;
    }
    std::vector<std::string> names;
    std::size_t begin = 0;
    while (begin <= text->size()) {
        const auto end = std::min(text->find(',', begin), text->size());
        std::string name(text->substr(begin, end - begin));
        if (!name.starts_with(kFigurePrefix) && std::find(known.begin(), known.end(), name) == known.end()) {
            asked.wrong("names", "names: there is no metric '" + name + "'; there are " +
                                     boost::algorithm::join(known, ", ") + ", and figures/NAME of eval.command");
        } else if (std::find(names.begin(), names.end(), name) == names.end()) {
            names.push_back(std::move(name));
        }
        begin = end + 1;
    }
    return names;
}

json::object to_json_object(const MetricSeries& series) {
    json::array steps;
    json::array values;
    for (const auto& point : series.points) {
        steps.emplace_back(point.step);
        values.push_back(std::isfinite(point.value) ? json::value(point.value) : json::value(nullptr));
    }
    return {{"name", series.name},
            {"total_points", series.total_points},
            {"steps", std::move(steps)},
            {"values", std::move(values)}};
}

class HistoryApi {
  public:
    explicit HistoryApi(JobManager& manager) : manager_(manager) {}

    asio::awaitable<Response> events(Request request) {
        const std::string id(request.path_parameter("id"));
        const bool streams = wants_event_stream(request);
        QueryReader query(request, {"after", "limit", "order"});
        auto after = query.number<std::uint64_t>("after", 0, kMaxNumber).value_or(0);
        const auto limit = query.limit(kEventsDefault, kEventsMax);
        // A client that reconnects sends its last event; its URL still has the first start.
        if (const auto last = request.header("last-event-id"); last && !last->empty()) {
            after = query.number_of<std::uint64_t>(*last, "Last-Event-ID", 0, kMaxNumber).value_or(0);
        }
        const bool newest_first = query.newest_first(false);
        if (streams && newest_first) {
            query.wrong("order", "order=desc: a stream runs forward in time");
        }
        query.finish();
        if (streams) {
            static_cast<void>(co_await job_of(manager_, request));
            co_return event_stream(manager_, id, after, job_event_writer());
        }
        // Nothing after the start means the end from which the order begins.
        const bool from_end = newest_first && !query.has("after");
        auto asked = newest_first ? manager_.events_before(id, from_end ? kMaxNumber : after, limit)
                                  : manager_.events(id, after, limit);
        const auto batch = co_await std::move(asked);
        if (!batch.found) {
            job_not_found(request);
        }
        json::array data;
        for (const auto& event : batch.events) {
            data.push_back(api::to_json_object(event));
        }
        const json::object body{{"object", "list"}, {"data", std::move(data)}, {"has_more", batch.has_more}};
        co_return json_response(200, body);
    }

    asio::awaitable<Response> checkpoints(Request request) {
        const std::string id(request.path_parameter("id"));
        QueryReader query(request, {"after", "limit"});
        const auto after = query.number<std::uint64_t>("after", 0, kMaxNumber).value_or(0);
        const auto limit = query.limit(kCheckpointsDefault, kCheckpointsMax);
        query.finish();
        const auto all = co_await manager_.checkpoints(id);
        if (!all) {
            job_not_found(request);
        }
        json::array data;
        auto number = std::min<std::uint64_t>(after, all->size());
        for (; number < all->size() && data.size() < limit; ++number) {
            json::object one{{"object", "job.checkpoint"}, {"number", number + 1}};
            for (auto& member : write_fields((*all)[number])) {
                one[member.key()] = std::move(member.value());
            }
            data.push_back(std::move(one));
        }
        const json::object body{{"object", "list"}, {"data", std::move(data)}, {"has_more", number < all->size()}};
        co_return json_response(200, body);
    }

    asio::awaitable<Response> metrics(Request request) {
        const std::string id(request.path_parameter("id"));
        QueryReader reader(request, {"names", "after_step", "max_points"});
        SeriesQuery query;
        query.names = names_of(reader);
        query.all_figures = !reader.has("names");
        query.after_step = reader.number<std::uint64_t>("after_step", 0, kMaxNumber);
        query.max_points = reader.number<std::uint32_t>("max_points", 2, kPointsMax).value_or(kPointsDefault);
        reader.finish();
        const auto series = co_await manager_.metrics(id, std::move(query));
        if (!series) {
            job_not_found(request);
        }
        json::array data;
        for (const auto& one : *series) {
            data.push_back(to_json_object(one));
        }
        const json::object body{{"object", "job.metrics"}, {"job_id", id}, {"data", std::move(data)}};
        co_return json_response(200, body);
    }

  private:
    JobManager& manager_;
};

}  // namespace

std::vector<http::Route> make_history_routes(JobManager& manager) {
    const auto api = std::make_shared<HistoryApi>(manager);
    return {
        api_route(api, "GET", "/v1/jobs/{id}/events", &HistoryApi::events),
        api_route(api, "GET", "/v1/jobs/{id}/checkpoints", &HistoryApi::checkpoints),
        api_route(api, "GET", "/v1/jobs/{id}/metrics", &HistoryApi::metrics),
    };
}

}  // namespace distilld
