#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "net/http_message.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "server/sinks/sink.hpp"

/// Spans in OTLP's JSON: ids in hex, times as texts of nanoseconds since 1970.
namespace distilld::sinks {

/// Whether the spans of step `index`, counted from the attempt's first, are sent: all of the first thousand, then every
/// second one, from 2000 on every fourth, and so on, 500 per doubling. A run of a million steps sends 6,000.
[[nodiscard]] bool is_sampled(std::uint64_t index);

struct SpanTreeOptions {
    std::uint64_t trace_seed[2] = {1, 2};  ///< two halves of the trace's id
    std::uint64_t first_step = 0;
    StepPlan steps{};
    std::chrono::nanoseconds unix_offset{};  ///< from the graph's clock to the time since 1970
};

/// One trace per attempt of a run. Below the job are its steps, and below each step the work of the stages for it.
/// Checkpoints, evaluations and single optimizer updates are also below the job. A step's span lasts from the planning
/// of its first micro-batch, ahead of the training, to the end of the optimizer's work.
class SpanTree {
  public:
    explicit SpanTree(SpanTreeOptions options) : options_(options) {}

    /// The spans of the records. Spans of a step and of the job are returned when they end.
    [[nodiscard]] boost::json::array spans_of(const std::vector<SinkItem>& items);
    /// Confirms that the spans of the last call were sent; otherwise the same records give the same spans again.
    void sent();

  private:
    struct Step {
        Instant begin;
        Instant end;
        bool finished = false;
    };

    void add(const SinkItem& item, boost::json::array& spans);
    void add_span(const SpanRecord& record, boost::json::array& spans);
    void add_step(std::uint64_t index, const Step& step, boost::json::array& spans) const;
    void add_job(const EndRecord& end, std::chrono::nanoseconds at, boost::json::array& spans) const;
    [[nodiscard]] boost::json::object span(std::uint64_t id, std::uint64_t parent, std::string name,
                                           std::chrono::nanoseconds begin, std::chrono::nanoseconds end) const;
    [[nodiscard]] std::uint64_t root_id() const;
    [[nodiscard]] std::uint64_t step_id(std::uint64_t index) const;

    SpanTreeOptions options_;
    std::chrono::nanoseconds began_{};
    std::map<std::uint64_t, Step> steps_;  ///< in progress; bounded by the prefetch window
};

/// The body of an export request.
[[nodiscard]] boost::json::object otlp_request(boost::json::array spans, const std::string& job_name,
                                               const std::string& job_id);

/// The headers in OTEL_EXPORTER_OTLP_HEADERS: "name=value,name=value" with percent-encoded values. Invalid ones are
/// skipped.
[[nodiscard]] std::vector<HttpHeader> read_otlp_headers(const std::string& text);

}  // namespace distilld::sinks
