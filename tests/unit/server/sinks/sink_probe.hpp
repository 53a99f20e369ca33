#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/sinks/run_sinks.hpp"
#include "server/sinks/sink.hpp"

namespace distilld::test {

inline constexpr std::chrono::milliseconds kStart{1'700'000'000'000};

/// An item, `seconds` behind the start of the tests' time.
template <class T>
sinks::SinkItem item(T record, double seconds = 0) {
    const auto behind = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
    return {std::chrono::system_clock::time_point(kStart + behind), std::move(record)};
}

inline sinks::StepRecord step(std::uint64_t number, double loss = 1.5) {
    sinks::StepRecord record;
    record.step = number;
    record.total_steps = 10;
    record.loss = loss;
    record.kd_loss = 1.25;
    record.learning_rate = 0.001;
    record.tokens = number * 100;
    return record;
}

inline StartedEvent started(std::uint64_t first_step = 0) {
    StartedEvent event;
    event.total_steps = 10;
    event.first_step = first_step;
    event.dtype = "fp32";
    return event;
}

inline sinks::EndRecord ended(sinks::EndRecord::Status status, std::uint64_t last) {
    sinks::EndRecord record;
    record.status = status;
    record.step = last;
    return record;
}

/// The context of a run whose output is the folder; environment variables as given.
inline sinks::SinkContext context_of(const std::string& output, std::map<std::string, std::string> environment = {}) {
    sinks::SinkContext context;
    context.spec.name = "a job";
    context.spec.output = output;
    context.spec.training.max_steps = 10;
    context.spec_json = sinks::public_spec(context.spec);
    context.job_id = "job-1";
    context.environment = [environment = std::move(environment)](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? std::string() : found->second;
    };
    return context;
}

/// A sink and its thread's executor, which runs while a write is waited for.
class SinkProbe {
  public:
    SinkProbe(sinks::SinkFactory make, const sinks::SinkContext& context)
        : sink_(make(context, io_.get_executor()).value()) {}

    sinks::WriteResult write(std::vector<sinks::SinkItem> items) {
        std::optional<sinks::WriteResult> result;
        std::exception_ptr thrown;
        boost::asio::co_spawn(io_, sink_->write(items), [&](std::exception_ptr failed, sinks::WriteResult done) {
            thrown = std::move(failed);
            result = std::move(done);
        });
        io_.restart();
        while (!result) {
            io_.run_one();
        }
        if (thrown) {
            std::rethrow_exception(thrown);
        }
        return *result;
    }
    [[nodiscard]] bool asked_for() const { return sink_ != nullptr; }

  private:
    boost::asio::io_context io_{1};
    std::unique_ptr<sinks::Sink> sink_;
};

}  // namespace distilld::test
