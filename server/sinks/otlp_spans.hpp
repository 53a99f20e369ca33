#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "server/sinks/sink.hpp"

/// Spans as OTLP's JSON has them: ids as hex, times as texts of nanoseconds since 1970.
namespace distilld::sinks {

/// Whether the spans of step `index`, counted from the attempt's first, are sent: all of the first thousand, then every
/// second, from the two thousandth on every fourth, and so on, 500 for each doubling. So a run of a million steps sends
/// 6,000 of them.
[[nodiscard]] bool is_sampled(std::uint64_t index);

struct SpanTreeOptions {
    std::uint64_t trace_seed[2] = {1, 2};  ///< both together the trace's id
    std::uint64_t first_step = 0;
    StepPlan steps{};
    std::chrono::nanoseconds unix_offset{};  ///< from the graph's clock to the time since 1970
};

/// One trace for an attempt of a run: the job, below it its steps, below each what the stages did for it; checkpoints,
/// evaluations and single updates of the optimizer are below the job. A step's span lasts from the planning of its
/// first micro-batch, ahead of the training, to the end of the optimizer's work.
class SpanTree {
  public:
    explicit SpanTree(SpanTreeOptions options) : options_(options) {}

    /// The spans that the records come to. Those of a step and of the job come when they end.
    [[nodiscard]] boost::json::array spans_of(const std::vector<SinkItem>& items);
    /// The spans of the last call are sent; without this, a call with the same records gives the same spans again.
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
    std::map<std::uint64_t, Step> steps_;  ///< under way; bounded by the prefetch window
};

/// The body of an export request.
[[nodiscard]] boost::json::object otlp_request(boost::json::array spans, const std::string& job_name,
                                               const std::string& job_id);

}  // namespace distilld::sinks
