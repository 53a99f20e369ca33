#include "server/sinks/run_sinks.hpp"

#include <chrono>
#include <utility>

#include "api/job_spec_json.hpp"
#include "api/url_queries.hpp"
#include "base/json_text.hpp"

namespace distilld::sinks {

namespace {

class SpanFeed final : public TraceWriter {
  public:
    SpanFeed(RunSinks& sinks, TraceWriter* also) : sinks_(sinks), also_(also) {}

    void span(Stage stage, std::string_view name, Instant begin, Instant end, std::uint64_t number) override {
        sinks_.take(SpanRecord{stage, std::string(name), begin, end, number});
        if (also_ != nullptr) {
            also_->span(stage, name, begin, end, number);
        }
    }
    void overlapping_span(Stage stage, std::string_view name, Instant begin, Instant end,
                          std::uint64_t number) override {
        sinks_.take(SpanRecord{stage, std::string(name), begin, end, number});
        if (also_ != nullptr) {
            also_->overlapping_span(stage, name, begin, end, number);
        }
    }

  private:
    RunSinks& sinks_;
    TraceWriter* also_;
};

}  // namespace

void RunSinks::take(const WorkerEvent& event) {
    if (sinks_.empty()) {
        return;
    }
    const std::optional<Record> record = make_record(event, last_step_);
    if (!record) {
        return;
    }
    if (const auto* step = std::get_if<StepRecord>(&*record)) {
        last_step_ = step->step;
    }
    const bool for_all = std::holds_alternative<StartedEvent>(*record) || std::holds_alternative<EndRecord>(*record);
    const SinkItem item{std::chrono::system_clock::now(), *record};
    for (const OpenSink& sink : sinks_) {
        if (for_all || sink.takes == Takes::figures) {
            sink.runner->take(item);
        }
    }
}

void RunSinks::take(SpanRecord span) {
    const SinkItem item{std::chrono::system_clock::now(), std::move(span)};
    for (const OpenSink& sink : sinks_) {
        if (sink.takes == Takes::spans) {
            sink.runner->take(item);
        }
    }
}

bool RunSinks::takes_spans() const {
    for (const OpenSink& sink : sinks_) {
        if (sink.takes == Takes::spans) {
            return true;
        }
    }
    return false;
}

void RunSinks::settle() {
    for (const OpenSink& sink : sinks_) {
        sink.runner->hurry();
    }
    for (const OpenSink& sink : sinks_) {
        if (sink.takes == Takes::figures) {
            static_cast<void>(sink.runner->settle(kSettleTimeout));
        }
    }
}

void RunSinks::finish() {
    for (const OpenSink& sink : sinks_) {
        sink.runner->close();
    }
    for (const OpenSink& sink : sinks_) {
        sink.runner->join();
    }
}

std::vector<SinkCounters> RunSinks::counters() const {
    std::vector<SinkCounters> all;
    for (const OpenSink& sink : sinks_) {
        const SinkCounts counts = sink.runner->counts();
        all.push_back({sink.runner->name(), counts.written, counts.dropped});
    }
    return all;
}

Result<std::unique_ptr<RunSinks>> open_sinks(const SinkContext& context, SinkRunner::Warn warn,
                                             std::span<const SinkRow> rows) {
    struct Made {
        OpenSink open;
        std::unique_ptr<Sink> sink;  // uses the executor of the runner, so it is destroyed first
    };
    std::vector<Made> made;
    for (const SinkRow& row : rows) {
        auto runner = std::make_unique<SinkRunner>(row.name, row.pace, warn);
        Result<std::unique_ptr<Sink>> sink = row.make(context, runner->executor());
        if (!sink) {
            return sink.error();
        }
        if (*sink) {
            made.push_back({{row.takes, std::move(runner)}, std::move(*sink)});
        }
    }
    std::vector<OpenSink> open;
    for (Made& one : made) {
        one.open.runner->start(std::move(one.sink));
        open.push_back(std::move(one.open));
    }
    return std::make_unique<RunSinks>(std::move(open), context.first_step);
}

std::string public_spec(const JobSpec& spec) {
    boost::json::value written = api::to_json_object(spec);
    api::hide_url_queries(written);
    return to_text(written);
}

std::unique_ptr<TraceWriter> make_span_feed(RunSinks& sinks, TraceWriter* also) {
    return std::make_unique<SpanFeed>(sinks, also);
}

}  // namespace distilld::sinks
