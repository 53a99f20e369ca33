#pragma once

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pipeline/async/tuple.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld::test {

/// A teacher source in the process: answers nothing of value, after a latency, in an order that the test decides.
class FakeTeacher final : public TeacherSource {
  public:
    struct Fate {
        std::chrono::microseconds latency{0};
        std::optional<FetchError> failure;
    };

    std::size_t endpoint_count() const override { return 1; }
    const std::string& endpoint_name(std::size_t) const override { return name_; }
    boost::asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t) override { co_return TeacherInfo{}; }
    AnswerSize answer_size(std::uint32_t, std::uint32_t) const override { return {0, kHeldBytes}; }
    boost::asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t, std::shared_ptr<const TokenBatch> tokens,
                                                             std::chrono::nanoseconds deadline) override {
        asked.push_back(tokens->number);
        ++in_flight;
        max_in_flight = std::max(max_in_flight, in_flight);
        const Fate fate = decide ? decide(tokens->number, asked.size()) : Fate{};
        boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor);
        timer.expires_after(std::min<std::chrono::nanoseconds>(fate.latency, deadline));
        auto waiting = timer.async_wait(kTuple);
        auto [error] = co_await std::move(waiting);
        while (!error && hold && hold(tokens->number)) {
            timer.expires_after(std::chrono::milliseconds(1));
            auto held = timer.async_wait(kTuple);
            std::tie(error) = co_await std::move(held);
        }
        --in_flight;
        if (error) {
            co_return FetchError{FailureKind::cancelled, "cancelled", {}};
        }
        if (fate.latency > deadline) {
            co_return FetchError{FailureKind::timeout, "no answer", {}};
        }
        if (fate.failure) {
            co_return *fate.failure;
        }
        TeacherTargets targets;
        targets.rows = tokens->rows;
        targets.columns = tokens->columns;
        targets.held_bytes = kHeldBytes;
        if (!decode) {
            co_return targets;
        }
        wire_bytes += kWireBytes;
        auto decoder = std::make_unique<Decoder>(*this, tokens->number, std::move(targets));
        co_return EncodedAnswer(std::move(decoder), kWireBytes);
    }
    std::uint64_t bytes_received() const override { return wire_bytes; }
    WireTraffic traffic(std::size_t) const override { return {0, wire_bytes}; }
    void close() override {}

    std::function<Fate(std::uint64_t micro_batch, std::size_t call)> decide;
    /// A micro-batch is not answered while this is true of it, asked once a millisecond. Empty: none is held.
    std::function<bool(std::uint64_t micro_batch)> hold;
    /// Answers are bytes when it is set: decodes those of a micro-batch on the decode thread. A message = they cannot
    /// be.
    std::function<std::optional<std::string>(std::uint64_t micro_batch)> decode;
    bool unusable = false;  ///< what cannot be decoded could be read
    static constexpr std::uint64_t kWireBytes = 1000;
    std::uint64_t wire_bytes = 0;
    std::vector<std::uint64_t> asked;
    int in_flight = 0;
    int max_in_flight = 0;

  private:
    class Decoder final : public EncodedAnswer::Decoder {
      public:
        Decoder(FakeTeacher& teacher, std::uint64_t micro_batch, TeacherTargets targets)
            : teacher_(teacher), micro_batch_(micro_batch), targets_(std::move(targets)) {}
        FetchResult<TeacherTargets> decode() override {
            if (const auto defect = teacher_.decode(micro_batch_)) {
                return FetchError{FailureKind::bad_response, *defect, {}, teacher_.unusable};
            }
            return std::move(targets_);
        }

      private:
        FakeTeacher& teacher_;
        std::uint64_t micro_batch_;
        TeacherTargets targets_;
    };

    static constexpr std::size_t kHeldBytes = 100;
    std::string name_ = "fake";
};

}  // namespace distilld::test
