#include "server/cli/jobs/job_watch.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "base/json_text.hpp"
#include "base/utf8.hpp"
#include "server/cli/jobs/sse_parser.hpp"
#include "server/cli/progress_display.hpp"

namespace distilld::cli {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

/// The service sends a comment at least every 15 s.
constexpr seconds kSilence{60};
constexpr seconds kFirstPause{1};
constexpr seconds kMaxPause{15};
/// How long the service may be away before watch gives up.
constexpr seconds kAway{120};

void sleep_for(seconds time) {
    std::this_thread::sleep_for(time);
}

/// How long and how often an absent service is asked again.
class ReconnectBackoff {
  public:
    explicit ReconnectBackoff(Clock::time_point now) : heard_(now) {}

    void heard(Clock::time_point now) {
        heard_ = now;
        pause_ = kFirstPause;
    }
    /// nullopt: it has been absent for too long.
    std::optional<seconds> next_pause(Clock::time_point now) {
        if (now - heard_ >= kAway) {
            return std::nullopt;
        }
        const auto left = std::chrono::ceil<seconds>(kAway - (now - heard_));
        return std::min(left, std::exchange(pause_, std::min(2 * pause_, kMaxPause)));
    }

  private:
    Clock::time_point heard_;
    seconds pause_ = kFirstPause;
};

class Watch {
  public:
    Watch(RestClient& client, const std::string& job_id, bool json, const WatchTools& tools)
        : client_(client),
          json_(json),
          tools_(tools),
          sleep_(tools.sleep ? tools.sleep : sleep_for),
          display_(tools.print, tools.width),
          target_("/v1/jobs/" + path_segment(job_id) + "/events") {}

    std::optional<api::Job> run() {
        follow();
        display_.finish();
        if (!complaint_.empty()) {
            tools_.complain(complaint_);
        }
        return std::move(ending_);
    }

  private:
    void follow() {
        ReconnectBackoff backoff(tools_.now());
        bool answered = false;  // at any time
        bool away = false;
        for (;;) {
            heard_ = false;
            const auto response = listen();
            if (ending_) {
                return;
            }
            const bool refused = response && response->status != 200 && response->status < 500;
            answered = answered || response || heard_;
            if (refused || !answered) {
                complaint_ = reason_of(response);
                return;
            }
            if (heard_) {
                backoff.heard(tools_.now());
                away = false;
            }
            const auto pause = backoff.next_pause(tools_.now());
            if (!pause) {
                complaint_ = reason_of(response) + "; gave up after " + std::to_string(kAway.count()) +
                             " s. The job may still run: watch it again when the service is back";
                return;
            }
            if (!heard_ && !std::exchange(away, true)) {
                display_.finish();
                tools_.complain(reason_of(response) + "; asking again");
            }
            sleep_(*pause);
        }
    }

    Result<RestResponse> listen() {
        SseParser parser([this](const SseEvent& event) { take(event); });
        const RestClient::OnPiece on_piece = [&](std::string_view bytes) {
            heard_ = true;
            parser.feed(bytes);
            return !ending_.has_value();
        };
        RestClient::Headers headers{{"Accept", "text/event-stream"}};
        if (!last_id_.empty()) {
            headers.emplace_back("Last-Event-ID", last_id_);
        }
        return client_.stream(target_, headers, on_piece, kSilence);
    }

    static std::string reason_of(const Result<RestResponse>& response) {
        if (!response) {
            return response.error().message;
        }
        return response->status == 200 ? "the stream of events ended early" : describe_problem(*response);
    }

    void take(const SseEvent& event) {
        boost::system::error_code ec;
        const json::value data = json::parse(event.data, ec);
        if (ec) {
            return;
        }
        if (event.type == "done") {
            auto job = api::job_from_json(data);
            if (job && api::is_terminal(job->state)) {
                ending_ = std::move(*job);
            }
            return;
        }
        if (!event.id.empty()) {
            last_id_ = event.id;
        }
        if (json_) {
            tools_.print(to_shown_utf8(to_text(data)) + "\n");
            return;
        }
        if (event.type == "gap") {
            return;
        }
        const auto one = api::job_event_from_json(data);
        if (!one) {
            return;
        }
        if (one->type == api::EventType::metrics) {
            const auto progress = api::progress_from_json(json::value(one->data));
            if (progress) {
                display_.show(WorkerEvent(*progress), tools_.now());
            }
            return;
        }
        display_.line(one->created_at + " " + one->level + " " + one->message);
    }

    RestClient& client_;
    const bool json_;
    const WatchTools& tools_;
    const std::function<void(seconds)> sleep_;
    ProgressDisplay display_;
    const std::string target_;
    std::string last_id_;
    bool heard_ = false;  ///< this connection has delivered something
    std::string complaint_;
    std::optional<api::Job> ending_;
};

}  // namespace

std::optional<api::Job> watch_job(RestClient& client, const std::string& job_id, bool json, const WatchTools& tools) {
    return Watch(client, job_id, json, tools).run();
}

}  // namespace distilld::cli
